// The counters of a process.
#include "python/railhop/bind.h"

namespace railhop::python {
namespace {

void BindPortStats(py::module_* module) {
  using admin::PortStats;
  Record<PortStats>(module, "PortStats", R"(What a port has carried since the process began.

Example:
    >>> railhop.stats().ports[0].name
    'mlx5_0:1'
)")
      .Field("name", &PortStats::name, "mlx5_0:1.")
      .Field("sent_bytes", &PortStats::sent_bytes, "Of NCCL's data.")
      .Field("received_bytes", &PortStats::received_bytes, "Of NCCL's data.")
      .Field("sent_messages", &PortStats::sent_messages,
             "Stripes: what went over this port of NCCL's messages.")
      .Field("received_messages", &PortStats::received_messages, "Stripes, as above.")
      .Field("resent_bytes", &PortStats::resent_bytes, "After a fault elsewhere.")
      .Field("stalls", &PortStats::stalls, "How often nothing got through for a while.")
      .Field("faults", &PortStats::faults, "Episodes that began on it.");
}

void BindHistogram(py::module_* module) {
  using admin::Histogram;
  Record<Histogram>(module, "Histogram", R"(How long something took, over the life of the process.

Example:
    >>> histogram = railhop.stats().histograms[0]
    >>> histogram.unit, len(histogram.counts) - len(histogram.bounds)
    ('ns', 1)
)")
      .Field("name", &Histogram::name, "detect, agree, resume or probe.")
      .Field("unit", &Histogram::unit, "Of bounds, sum and max.")
      .Field("bounds", &Histogram::bounds, "The upper bounds of all buckets but the last.")
      .Field("counts", &Histogram::counts, "Of each bucket; the last is above all bounds.")
      .Field("count", &Histogram::count, "Of all.")
      .Field("sum", &Histogram::sum, "Of all.")
      .Field("max", &Histogram::max, "Of all.");
}

}  // namespace

void BindStats(py::module_* module) {
  BindPortStats(module);
  BindHistogram(module);
  using admin::Stats;
  Record<Stats>(module, "Stats", R"(The counters of a process: they only grow.

Example:
    >>> stats = railhop.stats()
    >>> stats.probes_sent >= stats.probes_answered
    True
    >>> [histogram.name for histogram in stats.histograms]
    ['detect', 'agree', 'resume', 'probe']
)")
      .Field("process", &Stats::process, "Who it is.")
      .Field("ports", &Stats::ports, "What each has carried.")
      .Field("faults", &Stats::faults, "Episodes by cause.")
      .Field("episodes_begun", &Stats::episodes_begun, "Faults, however many connections each had.")
      .Field("episodes_recovered", &Stats::episodes_recovered, "Of these.")
      .Field("gave_up", &Stats::gave_up, "Connections that nothing could carry for too long.")
      .Field("bytes_resent", &Stats::bytes_resent, "After faults.")
      .Field("stripes_resent", &Stats::stripes_resent, "After faults.")
      .Field("probes_sent", &Stats::probes_sent, "Over all paths.")
      .Field("probes_answered", &Stats::probes_answered, "Of these.")
      .Field("probes_lost", &Stats::probes_lost, "Of these.")
      .Field("stale_messages", &Stats::stale_messages,
             "Of the control channel: of an old epoch, or of nothing known.")
      .Field("refused_messages", &Stats::refused_messages,
             "Of the control channel: that no honest peer sends.")
      .Field("histograms", &Stats::histograms, "Times to detect, agree and resume, and of probes.");
}

}  // namespace railhop::python

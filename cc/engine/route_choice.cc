#include "cc/engine/route_choice.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace railhop::engine {

namespace {

constexpr int kShareMax = 16;

// What makes one path nearer than another. Those that are equal here share the load.
auto Distance(const PathFacts& facts) {
  return std::make_tuple(!facts.same_rail, facts.distance, facts.remote_distance);
}

const PathFacts* Find(const RouteWish& wish, const PathId& path) {
  for (const PathFacts& facts : wish.paths) {
    if (facts.path == path) return &facts;
  }
  return nullptr;
}

bool ByPath(const PathFacts* a, const PathFacts* b) { return a->path < b->path; }

// The good paths of the nearest class; and of the next ones, as long as they are fewer than
// `at_least`, but not beyond the rails: a path across rails often shares a port with one of the
// nearer. Nearest first. The pointers are into `wish`.
std::vector<const PathFacts*> Nearest(const RouteWish& wish, size_t at_least) {
  std::vector<const PathFacts*> good;
  for (const PathFacts& facts : wish.paths) {
    if (facts.good) good.push_back(&facts);
  }
  std::sort(good.begin(), good.end(), [](const PathFacts* a, const PathFacts* b) {
    return std::make_pair(Distance(*a), a->path) < std::make_pair(Distance(*b), b->path);
  });
  std::vector<const PathFacts*> nearest;
  for (const PathFacts* facts : good) {
    if (!nearest.empty()) {
      const PathFacts& last = *nearest.back();
      if (facts->path == last.path) continue;
      if (facts->same_rail != last.same_rail) break;
      if (Distance(*facts) != Distance(last) && nearest.size() >= at_least) break;
    }
    nearest.push_back(facts);
  }
  return nearest;
}

// Leaves `count`: the nearest, and of those that are equally near the ones that carry least. What
// is taken is added to `load`.
void TakeLeastLoaded(size_t count, std::map<PathId, int>* load,
                     std::vector<const PathFacts*>* paths) {
  if (paths->size() <= count) return;
  const auto weight = [load](const PathFacts* facts) {
    return std::make_tuple(Distance(*facts), facts->load + (*load)[facts->path], facts->path);
  };
  std::sort(paths->begin(), paths->end(),
            [&](const PathFacts* a, const PathFacts* b) { return weight(a) < weight(b); });
  paths->resize(count);
  for (const PathFacts* facts : *paths) ++(*load)[facts->path];
}

uint64_t Speed(const PathFacts& facts) {
  return static_cast<uint64_t>(std::max(facts.speed_mbps, 1));
}

// A leg's part of its base lane's traffic: part / whole. Every base lane counts the same, as it
// does while all is healthy.
struct Part {
  uint64_t part = 1;
  uint64_t whole = 1;
};

// Whole numbers from 1 to kShareMax in the proportions of `parts`, as nearly as these can.
std::vector<int> Shares(const std::vector<Part>& parts) {
  constexpr uint64_t kScaleMax = uint64_t{1} << 32;
  uint64_t scale = 1;
  for (const Part& part : parts) {
    const uint64_t factor = part.whole / std::gcd(scale, part.whole);
    if (factor > kScaleMax / scale) {
      scale = kScaleMax;  // not exact, but near
      break;
    }
    scale *= factor;
  }
  std::vector<uint64_t> exact;
  uint64_t common = 0;
  for (const Part& part : parts) {
    // part < 2^31 and scale <= 2^32: no overflow.
    exact.push_back(std::max<uint64_t>(part.part * scale / part.whole, 1));
    common = std::gcd(common, exact.back());
  }
  const uint64_t most = exact.empty() ? 1 : *std::max_element(exact.begin(), exact.end()) / common;
  std::vector<int> shares;
  int left = 0;
  for (uint64_t value : exact) {
    value /= common;
    if (most > kShareMax) value = std::max<uint64_t>((value * kShareMax + most / 2) / most, 1);
    shares.push_back(static_cast<int>(value));
    left = std::gcd(left, shares.back());
  }
  for (int& share : shares) share /= left;
  return shares;
}

}  // namespace

std::vector<RouteLeg> ChooseRoute(const RouteWish& wish) {
  std::vector<const PathFacts*> home(wish.base.size(), nullptr);
  size_t failed = 0;
  for (size_t base = 0; base < wish.base.size(); ++base) {
    const PathFacts* facts = Find(wish, wish.base[base]);
    if (facts != nullptr && facts->good) home[base] = facts;
    if (home[base] == nullptr) ++failed;
  }
  size_t spread = static_cast<size_t>(std::max(wish.spread_max, 1));
  if (failed > 0) {
    const size_t room = static_cast<size_t>(std::max(wish.lanes_max, 0));
    const size_t healthy = wish.base.size() - failed;
    const size_t each = room > healthy ? (room - healthy) / failed : 0;
    spread = std::clamp<size_t>(each, 1, spread);
  }
  const std::vector<const PathFacts*> nearest =
      Nearest(wish, std::min(spread, static_cast<size_t>(std::max(wish.spread_min, 1))));
  std::vector<RouteLeg> legs;
  std::vector<Part> parts;
  std::map<PathId, int> load;
  for (size_t base = 0; base < wish.base.size(); ++base) {
    if (home[base] != nullptr) {
      legs.push_back({wish.base[base], static_cast<int>(base), 1});
      parts.push_back({});
      continue;
    }
    std::vector<const PathFacts*> taken = nearest;
    TakeLeastLoaded(spread, &load, &taken);
    std::sort(taken.begin(), taken.end(), ByPath);
    uint64_t whole = 0;
    for (const PathFacts* facts : taken) whole += Speed(*facts);
    for (const PathFacts* facts : taken) {
      legs.push_back({facts->path, static_cast<int>(base), 1});
      parts.push_back({Speed(*facts), whole});
    }
  }
  const std::vector<int> shares = Shares(parts);
  for (size_t i = 0; i < legs.size(); ++i) legs[i].share = shares[i];
  return legs;
}

std::vector<PathId> NextInLine(const RouteWish& wish, int count) {
  std::vector<const PathFacts*> line;
  for (const PathFacts& facts : wish.paths) {
    if (std::find(wish.base.begin(), wish.base.end(), facts.path) == wish.base.end()) {
      line.push_back(&facts);
    }
  }
  std::sort(line.begin(), line.end(), [](const PathFacts* a, const PathFacts* b) {
    return std::make_pair(Distance(*a), a->path) < std::make_pair(Distance(*b), b->path);
  });
  const auto apart = [](const PathFacts& facts, const PathId& base) {
    return facts.path.local != base.local && facts.path.remote != base.remote;
  };
  std::vector<PathId> next;
  const auto add = [&next](const PathFacts& facts) {
    if (std::find(next.begin(), next.end(), facts.path) == next.end()) next.push_back(facts.path);
  };
  for (const PathId& base : wish.base) {
    int taken = 0;
    bool has_apart = false;
    for (size_t i = 0; i < line.size() && taken < count; ++i) {
      const bool is_last = taken + 1 == count;
      // The last one is to survive the loss of either port of the base path, if one can.
      if (is_last && !has_apart && !apart(*line[i], base)) {
        const auto other = std::find_if(line.begin() + static_cast<std::ptrdiff_t>(i), line.end(),
                                        [&](const PathFacts* f) { return apart(*f, base); });
        add(other == line.end() ? *line[i] : **other);
        break;
      }
      has_apart = has_apart || apart(*line[i], base);
      add(*line[i]);
      ++taken;
    }
  }
  return next;
}

}  // namespace railhop::engine

#include "integration/verbs/report.h"

#include <stdio.h>

#include <fstream>
#include <sstream>

#include "integration/verbs/capabilities.h"

namespace railhop::conformance {
namespace {

std::string JsonString(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string XmlText(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

bool WriteFile(const std::string& path, const std::string& text, std::string* error) {
  if (path.empty()) return true;
  std::ofstream file(path);
  file << text;
  file.close();
  if (file) return true;
  *error = "cannot write " + path;
  return false;
}

}  // namespace

std::string ReportAsJson(const std::string& fabric, const std::vector<Result>& results) {
  std::ostringstream out;
  out << "{\"fabric\": " << JsonString(fabric) << ", \"cases\": [";
  const char* separator = "\n";
  for (const Result& r : results) {
    out << separator << "  {\"name\": " << JsonString(r.name)
        << ", \"clause\": " << JsonString(r.clause) << ", \"outcome\": \"" << OutcomeName(r.outcome)
        << "\", \"detail\": " << JsonString(r.detail) << ", \"seconds\": " << r.seconds << "}";
    separator = ",\n";
  }
  out << "\n]}\n";
  return out.str();
}

std::string ReportAsJunit(const std::string& fabric, const std::vector<Result>& results) {
  int run = 0, failures = 0;
  std::ostringstream cases;
  for (const Result& r : results) {
    if (!r.run) continue;
    ++run;
    cases << "  <testcase classname=\"" << XmlText(fabric) << "\" name=\"" << XmlText(r.name)
          << "\" time=\"" << r.seconds << "\">";
    const std::string detail = XmlText(r.detail);
    if (r.outcome == Outcome::kFailed) {
      ++failures;
      cases << "<failure message=\"" << detail << "\"/>";
    } else if (!detail.empty()) {
      cases << "<system-out>" << OutcomeName(r.outcome) << ": " << detail << "</system-out>";
    }
    cases << "</testcase>\n";
  }
  std::ostringstream out;
  out << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"verbs_conformance."
      << XmlText(fabric) << "\" tests=\"" << run << "\" failures=\"" << failures << "\">\n"
      << cases.str() << "</testsuite>\n";
  return out.str();
}

std::string CasesAsJson(const std::vector<Case>& cases) {
  std::ostringstream out;
  out << "{\"capabilities\": [";
  const char* separator = "\n";
  for (const Capability& capability : AllCapabilities()) {
    out << separator << "  {\"word\": " << JsonString(capability.word)
        << ", \"meaning\": " << JsonString(capability.meaning) << "}";
    separator = ",\n";
  }
  out << "\n], \"cases\": [";
  separator = "\n";
  for (const Case& c : cases) {
    out << separator << "  {\"name\": " << JsonString(c.name)
        << ", \"clause\": " << JsonString(c.clause) << ", \"needs\": [";
    for (size_t i = 0; i < c.needs.size(); ++i) out << (i ? ", " : "") << JsonString(c.needs[i]);
    out << "]}";
    separator = ",\n";
  }
  out << "\n]}\n";
  return out.str();
}

bool WriteReports(const Options& options, const std::vector<Result>& results, std::string* error) {
  return WriteFile(options.report, ReportAsJson(options.fabric, results), error) &&
         WriteFile(options.junit, ReportAsJunit(options.fabric, results), error);
}

}  // namespace railhop::conformance

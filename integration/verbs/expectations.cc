#include "integration/verbs/expectations.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "integration/verbs/capabilities.h"

namespace railhop::conformance {
namespace {

std::string Trim(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::vector<std::string> Split(const std::string& line) {
  std::vector<std::string> fields;
  size_t start = 0;
  for (;;) {
    const size_t bar = line.find('|', start);
    fields.push_back(Trim(line.substr(start, bar - start)));
    if (bar == std::string::npos) return fields;
    start = bar + 1;
  }
}

std::string CapabilityWords() {
  std::string words;
  for (const Capability& capability : AllCapabilities()) {
    words += words.empty() ? "" : ", ";
    words += capability.word;
  }
  return words;
}

// Empty when the line is good.
std::string ParseLine(const std::vector<std::string>& fields, const std::vector<Case>& cases,
                      Expectations* out) {
  if (fields[0] == "unsupported") {
    if (fields.size() != 3) return "unsupported takes a capability and a reason";
    if (FindCapability(fields[1]) == nullptr) {
      return "unknown capability \"" + fields[1] + "\"; there are: " + CapabilityWords();
    }
    out->unsupported.push_back({fields[1], fields[2]});
    return "";
  }
  if (fields[0] == "differs") {
    if (fields.size() != 5) return "differs takes a case, a text, a clause and a reason";
    const bool known = std::any_of(cases.begin(), cases.end(),
                                   [&](const Case& c) { return MatchesGlob(fields[1], c.name); });
    if (!known) return "no case is named \"" + fields[1] + "\"; --list shows them";
    out->differences.push_back({fields[1], fields[2], fields[3], fields[4]});
    return "";
  }
  return "unknown word \"" + fields[0] + "\"; allowed are: unsupported, differs";
}

}  // namespace

bool MatchesGlob(const std::string& pattern, const std::string& name) {
  size_t p = 0, n = 0, star = std::string::npos, mark = 0;
  while (n < name.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = n;
    } else if (star != std::string::npos) {
      p = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

const Unsupported* Expectations::FindUnsupported(const Case& c) const {
  for (const Unsupported& entry : unsupported) {
    for (const std::string& need : c.needs) {
      if (need == entry.capability) return &entry;
    }
  }
  return nullptr;
}

const Difference* Expectations::FindDifference(const std::string& name) const {
  for (const Difference& entry : differences) {
    if (MatchesGlob(entry.pattern, name)) return &entry;
  }
  return nullptr;
}

bool ParseExpectations(const std::string& file, const std::string& text,
                       const std::vector<Case>& cases, Expectations* out, std::string* error) {
  std::istringstream stream(text);
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    if (Trim(line).empty() || Trim(line)[0] == '#') continue;
    const std::string problem = ParseLine(Split(line), cases, out);
    if (problem.empty()) continue;
    *error = file + ":" + std::to_string(number) + ": " + problem;
    return false;
  }
  return true;
}

bool LoadExpectations(const std::string& file, const std::vector<Case>& cases, Expectations* out,
                      std::string* error) {
  if (file.empty()) return true;
  std::ifstream stream(file);
  if (!stream) {
    *error = "cannot read the expectations file " + file;
    return false;
  }
  std::ostringstream text;
  text << stream.rdbuf();
  return ParseExpectations(file, text.str(), cases, out, error);
}

}  // namespace railhop::conformance

// What a fabric declares about itself: a text file, one declaration a line, fields separated by " |
// ".
//
//   unsupported | CAPABILITY | reason
//   differs | CASE | text that the failure contains | clause | reason
//
// `unsupported`: cases that need the capability are not run; its probe, where there is one, must
// agree. `differs`: the case is run and must fail, with that text. A line that is no longer true is
// a failure. CASE may end in '*'. Empty lines and lines that start with '#' are skipped.
#ifndef RAILHOP_INTEGRATION_VERBS_EXPECTATIONS_H_
#define RAILHOP_INTEGRATION_VERBS_EXPECTATIONS_H_

#include <string>
#include <vector>

#include "integration/verbs/case.h"

namespace railhop::conformance {

struct Unsupported {
  std::string capability;
  std::string reason;
};

struct Difference {
  std::string pattern;   // case name, may end in '*'
  std::string fragment;  // of the failure's text
  std::string clause;
  std::string reason;
};

struct Expectations {
  std::vector<Unsupported> unsupported;
  std::vector<Difference> differences;

  // Null when nothing is declared.
  const Unsupported* FindUnsupported(const Case& c) const;
  const Difference* FindDifference(const std::string& name) const;
};

// '*' stands for any text, '?' for one character.
bool MatchesGlob(const std::string& pattern, const std::string& name);

// Errors: false with `error` naming the line (of `file`), the word and the allowed ones.
bool ParseExpectations(const std::string& file, const std::string& text,
                       const std::vector<Case>& cases, Expectations* out, std::string* error);

// Reads a file. An empty name gives empty expectations.
bool LoadExpectations(const std::string& file, const std::vector<Case>& cases, Expectations* out,
                      std::string* error);

}  // namespace railhop::conformance

#endif  // RAILHOP_INTEGRATION_VERBS_EXPECTATIONS_H_

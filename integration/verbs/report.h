// Writes results as JSON and as JUnit XML, and the list of cases as JSON.
#ifndef RAILHOP_INTEGRATION_VERBS_REPORT_H_
#define RAILHOP_INTEGRATION_VERBS_REPORT_H_

#include <string>
#include <vector>

#include "integration/verbs/runner.h"

namespace railhop::conformance {

// {"fabric":..., "cases":[{"name","clause","outcome","detail","seconds"}]}
std::string ReportAsJson(const std::string& fabric, const std::vector<Result>& results);

// One testsuite. Declared cases are skipped with their reason, different ones pass with it as
// output.
std::string ReportAsJunit(const std::string& fabric, const std::vector<Result>& results);

// {"capabilities":[{"word","meaning"}], "cases":[{"name","clause","needs"}]}
std::string CasesAsJson(const std::vector<Case>& cases);

// Writes the files that the options name. Errors: false with `error` naming the file.
bool WriteReports(const Options& options, const std::vector<Result>& results, std::string* error);

}  // namespace railhop::conformance

#endif  // RAILHOP_INTEGRATION_VERBS_REPORT_H_

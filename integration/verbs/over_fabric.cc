// Runs a program over a fresh software fabric and becomes it: the bridge from a cc_test to
// `railhop-fabric run`.
//
//   over_fabric LAUNCHER LIBRARY TOPOLOGY PROGRAM ARGS...
//
// In ARGS, {library} and {fault} stand for the library's path and the fault command, {junit} for
// Bazel's file. A cc_test, and no script, so that runs with a sanitizer include it.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace {

std::string Absolute(const std::string& path) {
  char resolved[PATH_MAX];
  // Not realpath: Bazel's runfiles are links into several folders.
  if (path[0] == '/' || getcwd(resolved, sizeof resolved) == nullptr) return path;
  return std::string(resolved) + "/" + path;
}

std::string Replace(std::string text, const std::string& word, const std::string& value) {
  const size_t at = text.find(word);
  return at == std::string::npos ? text : text.replace(at, word.size(), value);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: over_fabric LAUNCHER LIBRARY TOPOLOGY PROGRAM ARGS...\n");
    return 2;
  }
  const std::string launcher = Absolute(argv[1]);
  const std::string library = Absolute(argv[2]);
  const char* const junit = getenv("XML_OUTPUT_FILE");
  std::vector<std::string> words = {launcher,
                                    "run",
                                    "--no-sysfs",
                                    "--topology",
                                    argv[3],
                                    "--library-dir",
                                    library.substr(0, library.rfind('/')),
                                    "--",
                                    argv[4]};
  for (int i = 5; i < argc; ++i) {
    std::string word = Replace(argv[i], "{library}", library);
    word = Replace(word, "{fault}", launcher + " fault");
    words.push_back(Replace(word, "{junit}", junit != nullptr ? junit : ""));
  }
  // Every case is a process, and with the thread sanitizer each would wait a second at its end.
  const char* const tsan = getenv("TSAN_OPTIONS");
  if (tsan != nullptr)
    setenv("TSAN_OPTIONS", (std::string(tsan) + ":atexit_sleep_ms=0").c_str(), 1);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(launcher.c_str(), pointers.data());
  perror(launcher.c_str());
  return 125;
}

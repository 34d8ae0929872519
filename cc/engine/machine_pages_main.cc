// Writes docs/reference/{failover,path,port}-machine.md into the folder that is named.
#include <cstdio>
#include <fstream>
#include <string>

#include "cc/engine/machine_pages.h"

namespace {

bool Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (file.good()) return true;
  std::fprintf(stderr, "%s: cannot be written\n", path.c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: machine_pages FOLDER (docs/reference, with its whole path)\n", stderr);
    return 2;
  }
  const std::string folder = std::string(argv[1]) + "/";
  const bool done = Write(folder + "failover-machine.md", railhop::engine::FailoverMachinePage()) &&
                    Write(folder + "path-machine.md", railhop::engine::PathMachinePage()) &&
                    Write(folder + "port-machine.md", railhop::engine::PortMachinePage());
  return done ? 0 : 1;
}

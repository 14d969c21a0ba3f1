// make_sample_page REPORT.json PAGE.html [OTHER.html]: the page of a report, by the program's own code; with
// OTHER the page is made around that file in the place of the one inside the program.
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "baton/report/page.h"

namespace {

std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  file.exceptions(std::ios::badbit);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::cerr << "usage: make_sample_page REPORT.json PAGE.html [OTHER.html]\n";
    return 2;
  }
  const auto report = nlohmann::ordered_json::parse(read(argv[1]));
  const std::string page = argc == 4 ? baton::report::fill_page(read(argv[3]), report) : baton::report::to_page(report);
  std::ofstream(argv[2], std::ios::binary) << page;
  return 0;
}

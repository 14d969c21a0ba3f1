#include "run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/report/page.h"
#include "baton/report/report.h"
#include "browser.h"
#include "called_as.h"
#include "terminal.h"

namespace baton::app {

namespace fs = std::filesystem;

namespace {

bool is_address(std::string_view text) { return text.starts_with("http://") || text.starts_with("https://"); }

/// The path of the playground relative to the folder, escaped for a link in its page; empty if there is no playground.
std::string link_to_playground(const fs::path& folder, const std::string& given) {
  if (is_address(given)) {
    return given;
  }
  const fs::path beside = folder / "playground.html";
  const fs::path file = !given.empty() ? fs::path(given) : fs::is_regular_file(beside) ? beside : beside.filename();
  if (!fs::is_regular_file(file)) {
    return "";
  }
  std::string link;
  for (const char c : fs::proximate(fs::absolute(file), fs::absolute(folder)).generic_string()) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       std::string_view("-._~/").find(c) != std::string_view::npos;
    link += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return link;
}

}  // namespace

void require_playground(const std::string& playground) {
  if (!playground.empty() && !is_address(playground) && !fs::is_regular_file(playground)) {
    throw usage_error("--playground {} is neither a file nor an address: `{}` writes one", playground,
                      as_called("baton playground"));
  }
}

std::vector<lab::Result> write_report(const lab::Store& store, const std::vector<lab::Result>& concluded,
                                      const std::string& playground) {
  std::vector<lab::Result> results;
  for (const std::string& id : store.experiments()) {
    const auto known = std::find_if(concluded.begin(), concluded.end(),
                                    [&](const lab::Result& result) { return result.experiment->id == id; });
    results.push_back(known != concluded.end() ? *known : lab::conclude(store, id));
    write_whole(store.folder() / (id + ".csv"), report::to_csv(results.back()));
  }
  if (results.empty()) {
    throw usage_error("{} holds no results of experiments", store.folder().string());
  }
  lab::Json report = report::to_report(results, *store.spec(store.experiments().front()));
  if (const std::string link = link_to_playground(store.folder(), playground); !link.empty()) {
    report[lab::key::playground.name] = link;
  }
  write_whole(store.folder() / "report.json", report.dump(1) + "\n");
  write_whole(store.folder() / "report.md", report::to_markdown(results, report));
  write_whole(store.folder() / "report.html", report::to_page(report));
  return results;
}

void write_pdf(const fs::path& folder) {
  const std::optional<std::string> browser = find_browser();
  if (!browser) {
    throw failure("a PDF is printed by Chromium, which is not here: install the package chromium");
  }
  print_page(*browser, folder / "report.html", folder / "report.pdf");
  fmt::print("PDF: {}\n", (folder / "report.pdf").string());
}

}  // namespace baton::app

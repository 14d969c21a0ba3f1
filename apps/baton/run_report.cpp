#include "run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/report/page.h"
#include "baton/report/report.h"
#include "terminal.h"

namespace baton::app {

namespace fs = std::filesystem;

std::vector<lab::Result> write_report(const lab::Store& store, const std::vector<lab::Result>& concluded) {
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
  const lab::Json report = report::to_report(results, *store.spec(store.experiments().front()));
  write_whole(store.folder() / "report.json", report.dump(1) + "\n");
  write_whole(store.folder() / "report.md", report::to_markdown(results, report));
  write_whole(store.folder() / "report.html", report::to_page(report));
  return results;
}

std::optional<std::string> find_browser() {
  for (const char* browser : {"chromium", "chromium-browser", "google-chrome"}) {
    const std::string found = fmt::format("command -v {} >/dev/null 2>&1", browser);
    if (std::system(found.c_str()) == 0) {
      return browser;
    }
  }
  return std::nullopt;
}

void print_page(const std::string& browser, const fs::path& page, const fs::path& pdf) {
  std::error_code error;
  fs::remove(pdf, error);
  const std::string command = fmt::format(
      "{} --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
      "--disable-sync --no-pdf-header-footer --generate-pdf-document-outline --virtual-time-budget=20000 --print-to-pdf={} {} "
      ">/dev/null 2>&1",
      browser, shell_word(fs::absolute(pdf).string()), shell_word("file://" + fs::absolute(page).string()));
  if (std::system(command.c_str()) != 0 || !fs::exists(pdf)) {
    throw failure("{} could not print {} as PDF", browser, page.string());
  }
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

#include "browser.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "baton/base/error.h"
#include "baton/base/stop.h"
#include "baton/base/text.h"
#include "baton/exercise/process.h"

namespace baton::app {
namespace {

namespace fs = std::filesystem;

constexpr double longest_print_seconds = 120;

/// A folder that is gone with this value.
class TemporaryFolder {
 public:
  /// Below the first of these folders in which one can be made.
  explicit TemporaryFolder(std::initializer_list<fs::path> places) {
    for (const fs::path& place : places) {
      std::string pattern = (place / "baton-print-XXXXXX").string();
      if (path_.empty() && !place.empty() && mkdtemp(pattern.data()) != nullptr) {
        path_ = pattern;
      }
    }
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    for (int tries = 0; tries < 5 && !path_.empty() && fs::exists(path_, ignored); ++tries) {
      fs::remove_all(path_, ignored);  // a process of the browser that is just ending may still write there
    }
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

std::optional<std::string> find_browser() {
  const char* path = std::getenv("PATH");
  for (const char* browser : {"chromium", "chromium-browser", "google-chrome"}) {
    for (const std::string_view folder : split(path == nullptr ? "" : path, ':')) {
      if (access((fs::path(folder) / browser).c_str(), X_OK) == 0) {
        return browser;
      }
    }
  }
  return std::nullopt;
}

void print_page(const std::string& browser, const fs::path& page, const fs::path& pdf) {
  std::error_code error;
  fs::remove(pdf, error);
  const TemporaryFolder home({fs::temp_directory_path(error), pdf.parent_path()});
  if (home.path().empty()) {
    throw failure("{} could not print {} as PDF: it needs a folder for temporary files, and TMPDIR names none", browser,
                  page.string());
  }
  std::vector<std::string> words{"env"};
  for (const char* name : {"HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "TMPDIR"}) {
    words.push_back(fmt::format("{}={}", name, home.path().string()));
  }
  for (const std::string& word :
       {browser, "--user-data-dir=" + home.path().string(), std::string("--headless"), std::string("--no-sandbox"),
        std::string("--disable-gpu"), std::string("--disable-dev-shm-usage"), std::string("--no-first-run"),
        std::string("--disable-background-networking"), std::string("--disable-component-update"), std::string("--disable-sync"),
        std::string("--no-pdf-header-footer"), std::string("--generate-pdf-document-outline"),
        std::string("--virtual-time-budget=20000"), "--print-to-pdf=" + fs::absolute(pdf).string(),
        "file://" + fs::absolute(page).string()}) {
    words.push_back(word);
  }
  const exercise::Ended ended = exercise::run_command(words, longest_print_seconds, 0, asked_to_stop);
  throw_if_stop_requested();
  if (ended.code != 0 || !fs::exists(pdf)) {
    throw failure("{} could not print {} as PDF{}", browser, page.string(),
                  ended.late ? fmt::format(" within {} s", longest_print_seconds) : "");
  }
}

}  // namespace baton::app

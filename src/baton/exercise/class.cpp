#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/exercise/mark.h"

namespace baton::exercise {
namespace {

namespace fs = std::filesystem;

/// The submissions by the name of a student's folder and by exercise.
using HandedIn = std::map<std::string, std::map<std::string, fs::path>>;

HandedIn handed_in(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw usage_error("{} is not a folder: give one that has a folder per student", folder.string());
  }
  HandedIn all;
  for (const fs::directory_entry& student : fs::directory_iterator(folder)) {
    const std::string name = student.path().filename().string();
    if (!student.is_directory() || name.starts_with(".")) {
      continue;
    }
    auto& files = all[name];
    for (const Exercise& exercise : exercises()) {
      for (const fs::path& file : {student.path() / exercise.name / answer_file, student.path() / (exercise.name + ".cpp")}) {
        std::error_code ignored;
        if (fs::is_regular_file(file, ignored)) {
          files.try_emplace(exercise.name, file);
        }
      }
    }
  }
  if (all.empty()) {
    throw usage_error("{} has no folders: give one that has a folder per student", folder.string());
  }
  return all;
}

std::string on_one_line(std::string text) {
  for (char& c : text) {
    c = static_cast<unsigned char>(c) < 32 || c == 127 ? ' ' : c;
  }
  return is_utf8(text) ? text : "(no text in UTF-8)";
}

std::string remark_on(const Marks& marks) {
  if (!marks.trouble.empty()) {
    return on_one_line(marks.trouble);
  }
  std::string text;
  for (const Marks::Of& part : marks.parts) {
    if (part.earned < part.points) {
      text += fmt::format("{}{} of {}: {}", text.empty() ? "" : " ", part.earned, part.points, part.sentence);
    }
  }
  return on_one_line(text);
}

/// In a process of its own: whatever a submission does to its checker costs it alone.
void mark_row(Row& row, const fs::path& file, const ClassOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  constexpr double compiling = 200;
  const Ended ended = run_command({self, "check", file.string(), "--exercise", row.exercise, "--seed", std::to_string(options.seed),
                                   "--time-limit", fmt::format("{:.0f}ms", options.limits.all_seconds * 1e3), "--memory-limit",
                                   std::to_string(options.limits.memory), "--json", "-"},
                                  compiling + 4 * options.limits.all_seconds, 0);
  row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const job::Json json = job::Json::parse(ended.printed, nullptr, false);
  if (ended.late || ended.code > 1 || json.is_discarded()) {
    row.remark = ended.late ? "0 points: checking it took too long"
                            : "0 points: it could not be checked: " + on_one_line(ended.printed.substr(0, 300));
    return;
  }
  const Marks marks = marks_of(json);
  row.earned = marks.earned();
  row.points = marks.points();
  row.remark = remark_on(marks);
}

/// A spreadsheet must not take a name for a formula.
std::string cell(std::string text) {
  if (!text.empty() && std::string_view("=+-@").find(text[0]) != std::string_view::npos) {
    text.insert(0, "'");
  }
  if (text.find_first_of(",\"\n\r") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + "\"";
}

}  // namespace

std::vector<Row> mark_class(const ClassOptions& options, const ClassProgress& progress) {
  const HandedIn all = handed_in(options.folder);
  std::set<std::string> asked;
  if (options.only != nullptr) {
    asked.insert(options.only->name);
  }
  for (const auto& [student, files] : all) {
    for (const auto& [exercise, file] : files) {
      if (options.only == nullptr) {
        asked.insert(exercise);
      }
    }
  }
  if (asked.empty()) {
    throw usage_error("nobody in {} has handed in an exercise: {} is looked for, or {}.cpp, in the folder of each student",
                      options.folder.string(), exercises()[0].name + "/" + answer_file, exercises()[0].name);
  }
  std::vector<Row> rows;
  std::vector<fs::path> files;
  for (const auto& [student, of_student] : all) {
    for (const std::string& exercise : asked) {
      const auto found = of_student.find(exercise);
      rows.push_back({on_one_line(student), exercise, 0, 10, 0, found == of_student.end() ? "not handed in" : ""});
      files.push_back(found == of_student.end() ? fs::path() : found->second);
    }
  }
  std::atomic<std::size_t> next = 0;
  std::size_t done = 0;
  std::mutex telling;
  const auto work = [&] {
    for (std::size_t r = next++; r < rows.size(); r = next++) {
      if (!files[r].empty()) {
        try {
          mark_row(rows[r], files[r], options);
        } catch (const std::exception& error) {
          rows[r].remark = fmt::format("0 points: it could not be checked: {}", on_one_line(error.what()));
        }
      }
      const std::scoped_lock lock(telling);
      ++done;
      if (progress) {
        progress(done, rows.size());
      }
    }
  };
  {
    std::vector<std::jthread> workers;
    for (int j = 1; j < options.jobs; ++j) {
      workers.emplace_back(work);
    }
    work();
  }
  return rows;
}

std::string to_csv(const std::vector<Row>& rows, std::uint64_t seed) {
  std::string text = "student,exercise,points,of,seed,seconds,remark\n";
  for (const Row& row : rows) {
    text += fmt::format("{},{},{},{},{},{:.1f},{}\n", cell(row.student), row.exercise, row.earned, row.points, seed, row.seconds,
                        cell(row.remark));
  }
  return text;
}

}  // namespace baton::exercise

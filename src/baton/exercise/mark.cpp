#include "baton/exercise/mark.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"
#include "baton/exercise/build.h"

namespace baton::exercise {
namespace {

namespace fs = std::filesystem;

constexpr Bytes most_answer(std::int64_t{1} << 20);

/// The build folder of the one submission that a process marks; empty if there is none. Read by the thread that ends the process.
fs::path& current_build_folder() {
  static fs::path folder;
  return folder;
}

/// A folder that is deleted with this value.
class BuildFolder {
 public:
  BuildFolder() {
    std::string pattern = (fs::temp_directory_path() / "baton-check-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      throw failure("no folder can be made in {}", fs::temp_directory_path().string());
    }
    folder_ = pattern;
    current_build_folder() = folder_;
  }
  ~BuildFolder() { remove_build_folder(); }
  BuildFolder(const BuildFolder&) = delete;
  BuildFolder& operator=(const BuildFolder&) = delete;

  const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
};

/// The sentence on one part. The first of several parts with the same flaw names it.
std::string sentence_of(const GradedPart& part, const std::string& told) {
  if (part.cases() == 0) {
    return fmt::format("Not judged: {}, because no case got that far.", part.statement());
  }
  if (part.failed() == 0) {
    return fmt::format("Right: {}, in all {} cases.", part.statement(), part.cases());
  }
  std::string flaw = part.flaw();
  if (flaw == told) {
    return fmt::format("Wrong in {} of {} cases, for the same reason: {}.", part.failed(), part.cases(), part.statement());
  }
  if (!flaw.empty() && flaw.back() != '.') {
    flaw += '.';
  }
  if (!flaw.empty() && flaw[0] >= 'a' && flaw[0] <= 'z') {
    flaw[0] = static_cast<char>(flaw[0] - 'a' + 'A');
  }
  return fmt::format("Wrong in {} of {} cases: {}. {}", part.failed(), part.cases(), part.statement(), flaw);
}

std::string plural(int points) { return fmt::format("{} point{}", points, points == 1 ? "" : "s"); }

}  // namespace

int Marks::points() const {
  int sum = 0;
  for (const Of& part : parts) {
    sum += part.points;
  }
  return sum;
}

int Marks::earned() const {
  int sum = 0;
  for (const Of& part : parts) {
    sum += part.earned;
  }
  return sum;
}

Submission submission_at(const fs::path& path, const Exercise* given) {
  if (!fs::exists(path)) {
    throw usage_error("there is no {}", path.string());
  }
  const fs::path whole = fs::canonical(path);
  const bool folder = fs::is_directory(whole);
  const fs::path file = folder ? whole / answer_file : whole;
  if (given == nullptr) {
    given = find_exercise((folder ? whole.filename() : whole.stem()).string());
  }
  if (given == nullptr && !folder) {
    given = find_exercise(whole.parent_path().filename().string());
  }
  if (given == nullptr) {
    throw usage_error(
        "{} does not say which exercise it is: name the folder, or the file, as the exercise (as in {}), or give --exercise",
        path.string(), exercises()[0].name);
  }
  if (!fs::is_regular_file(file)) {
    throw usage_error("{} is not there: it is the file to fill", (folder ? path / answer_file : path).string());
  }
  return {given, file};
}

Marks mark(const Submission& submission, std::uint64_t seed, const Limits& limits) {
  const BuildFolder build_folder;
  Marks marks{.exercise = submission.exercise->name, .seed = seed, .confined = can_filter()};
  const std::string answer = read_file(submission.file, "the answer", most_answer);
  const Built built = build(*submission.exercise, answer, build_folder.folder());
  marks.trouble = built.complaint;
  // Without a program every case fails, and the parts with their points are known all the same.
  Session session(built.program, seed, limits);
  submission.exercise->check(session);
  marks.cases = session.cases();
  marks.printed = session.printed();
  std::string told;
  for (const GradedPart& part : session.parts()) {
    marks.parts.push_back({part.statement(), part.points(), part.earned(), sentence_of(part, told)});
    told = part.flaw().empty() ? told : part.flaw();
  }
  return marks;
}

void remove_build_folder() {
  if (!current_build_folder().empty()) {
    std::error_code ignored;
    fs::remove_all(current_build_folder(), ignored);
  }
}

job::Json to_json(const Marks& marks) {
  job::Json parts = job::Json::array();
  for (const Marks::Of& part : marks.parts) {
    parts.push_back({{"statement", part.statement}, {"points", part.points}, {"earned", part.earned}, {"sentence", part.sentence}});
  }
  return {{"exercise", marks.exercise}, {"seed", marks.seed},       {"cases", marks.cases},
          {"points", marks.points()},   {"earned", marks.earned()}, {"parts", parts},
          {"trouble", marks.trouble},   {"printed", marks.printed}, {"confined", marks.confined}};
}

Marks marks_of(const job::Json& json) {
  Marks marks{.exercise = json.at("exercise"),
              .seed = json.at("seed"),
              .cases = json.at("cases"),
              .trouble = json.at("trouble"),
              .printed = json.at("printed"),
              .confined = json.at("confined")};
  for (const job::Json& part : json.at("parts")) {
    marks.parts.push_back({part.at("statement"), part.at("points"), part.at("earned"), part.at("sentence")});
  }
  return marks;
}

std::string to_text(const Marks& marks) {
  std::string text = fmt::format("{}: {} of {}", marks.exercise, marks.earned(), plural(marks.points()));
  if (!marks.trouble.empty()) {
    return text + "\n\n" + marks.trouble + "\n";
  }
  text += fmt::format(" ({} cases, drawn with seed {})\n\n", marks.cases, marks.seed);
  for (const Marks::Of& part : marks.parts) {
    text += fmt::format("  {} of {}  {}\n", part.earned, part.points, part.sentence);
  }
  if (!marks.printed.empty()) {
    text += "\nYour program printed, which counts nothing:\n";
    std::size_t lines = 0;
    for (const std::string_view line : split(marks.printed, '\n')) {
      if (!line.empty() && ++lines <= 10) {
        text += fmt::format("  {}\n", line);
      }
    }
  }
  if (!marks.confined) {
    text += "\nNote: this system has no filters of system calls, so the program could use the network and files.\n";
  }
  return text;
}

}  // namespace baton::exercise

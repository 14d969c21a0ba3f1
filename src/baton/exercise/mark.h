#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "baton/exercise/exercises.h"
#include "baton/job/json.h"

namespace baton::exercise {

/// The marks of a submission.
struct Marks {
  struct Of {
    std::string statement;
    int points = 0;
    int earned = 0;
    std::string sentence;  // "Right: ...", "Wrong: ..."
  };
  std::string exercise;
  std::uint64_t seed = 0;
  std::int64_t cases = 0;
  std::vector<Of> parts;
  std::string trouble;  // why it was not run at all
  std::string printed;  // the beginning of what it printed
  bool confined = false;

  int points() const;
  int earned() const;
};

/// A file to mark, and the exercise that it answers.
struct Submission {
  const Exercise* exercise = nullptr;
  std::filesystem::path file;
};
/// The submission that a path means: the folder of an exercise, which has answer.cpp, or a file. The name of the folder or of the
/// file says which exercise it is, unless that is given. A usage error if it does not, or if there is no such file.
Submission submission_at(const std::filesystem::path& path, const Exercise* given = nullptr);

/// Builds and checks a submission. All cases follow from the seed.
Marks mark(const Submission& submission, std::uint64_t seed, const Limits& limits);

/// Removes the folder in which a submission is built: the process is about to end in the middle.
void remove_build_folder();

job::Json to_json(const Marks& marks);
/// A usage error if it is not valid.
Marks marks_of(const job::Json& json);
/// The text for a student: points, and a sentence for each part.
std::string to_text(const Marks& marks);

/// One student's answer to one exercise, and its points.
struct Row {
  std::string student;
  std::string exercise;
  int earned = 0;
  int points = 0;
  double seconds = 0;
  std::string remark;  // what is missing
};

/// Marks the submissions of a class: a folder with one folder per student, in which exercise NN-name is NN-name/answer.cpp or
/// NN-name.cpp. Each is marked by a process of its own, `jobs` of them at a time. `only` is the exercise to mark; null: all that
/// anybody handed in. A student without a submission gets no points.
struct ClassOptions {
  std::filesystem::path folder;
  const Exercise* only = nullptr;
  std::uint64_t seed = 0;
  Limits limits;
  int jobs = 1;
};
/// Called after each.
using ClassProgress = std::function<void(std::size_t done, std::size_t of)>;
std::vector<Row> mark_class(const ClassOptions& options, const ClassProgress& progress = {});

/// student, exercise, points, of, seed, seconds, remark.
std::string to_csv(const std::vector<Row>& rows, std::uint64_t seed);

}  // namespace baton::exercise

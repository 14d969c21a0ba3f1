#include "baton/exercise/build.h"

#include <array>
#include <cstdlib>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"

namespace baton::exercise {
namespace {

namespace fs = std::filesystem;

constexpr double longest_compilation = 180;  // seconds
constexpr std::int64_t compiler_memory = std::int64_t{4} << 30;
constexpr int lines_of_complaint = 12;

/// The layers that an answer may use, those first that use the others.
constexpr std::array layers{"sim", "trace", "cost", "strategy", "schedule", "plan", "cluster", "model", "op", "base"};

/// The folders of headers and libraries.
struct Kit {
  std::vector<std::string> includes;
  fs::path libraries;
};

Kit own_kit() {
  const fs::path program = fs::read_symlink("/proc/self/exe");
  const fs::path build_folder = program.parent_path().parent_path().parent_path();
  if (fs::exists(build_folder / "layers/exercise") && fs::exists(build_folder / "libbaton_base.a")) {
    Kit kit{{}, build_folder};
    for (const char* layer : layers) {
      kit.includes.push_back("-I" + (build_folder / "layers" / layer).string());
    }
    kit.includes.push_back("-I" + (build_folder / "layers/exercise").string());
    return kit;
  }
  const fs::path prefix = program.parent_path().parent_path();
  for (const char* libraries : {BATON_LIBRARY_FOLDER, "lib", "lib64"}) {
    if (fs::exists(prefix / libraries / "libbaton_base.a") && fs::exists(prefix / "include/baton/exercise/program.h")) {
      return {{"-I" + (prefix / "include").string()}, prefix / libraries};
    }
  }
  throw failure("{} is neither in its build folder nor installed with headers and libraries, which exercises are built with",
                program.string());
}

std::vector<std::string> words_in(std::string_view text) {
  std::vector<std::string> words;
  for (const std::string_view word : split(text, ' ')) {
    if (!word.empty()) {
      words.emplace_back(word);
    }
  }
  return words;
}

std::string setting(const char* variable, const char* otherwise) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

/// The first lines of a compiler's output, without the folder in which it worked.
std::string shortened(std::string text, const fs::path& folder) {
  const std::string prefix = folder.string() + "/";
  for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at)) {
    text.erase(at, prefix.size());
  }
  std::string kept;
  int lines = 0;
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty() || line.starts_with("In file included from") || line.starts_with("                 from")) {
      continue;
    }
    if (++lines > lines_of_complaint) {
      return kept + "\n  ...";
    }
    kept += fmt::format("\n  {}", line);
  }
  return kept;
}

}  // namespace

Built build(const Exercise& exercise, const std::string& answer, const fs::path& folder) {
  const Kit kit = own_kit();
  for (const auto& [path, text] : harness_texts()) {
    const fs::path file(path);
    if (file.parent_path() == exercise.name) {
      write_whole(folder / file.filename(), text);
    }
  }
  write_whole(folder / answer_file, answer);
  // As one source, so that headers are read once; the answer comes last, and changes nothing of the program around it.
  write_whole(folder / "whole.cpp", fmt::format("#include \"program.cpp\"\n#include \"{}\"\n", answer_file));
  const fs::path program = folder / "program";
  std::vector<std::string> command = words_in(setting("CXX", "c++"));
  const auto add = [&](const std::vector<std::string>& words) { command.insert(command.end(), words.begin(), words.end()); };
  add({"-std=c++20", "-O1", "-w", "-ffp-contract=off", "-pthread", "-fdiagnostics-color=never", "-I" + folder.string()});
  add(words_in(BATON_EXERCISE_FLAGS));
  add(kit.includes);
  add(words_in(setting("CXXFLAGS", "")));
  add({(folder / "whole.cpp").string(), "-o", program.string()});
  if (exercise.uses_baton) {
    for (const char* layer : layers) {
      command.push_back((kit.libraries / fmt::format("libbaton_{}.a", layer)).string());
    }
    add({"-lfmt", "-lhwloc"});
  }
  const Ended ended = run_command(command, longest_compilation, compiler_memory);
  if (ended.code == 127) {
    throw failure("the command {} was not found: exercises are built with a C++ compiler, which CXX may name", command[0]);
  }
  if (ended.late) {
    return {{}, fmt::format("{} was not compiled within {} s", answer_file, longest_compilation)};
  }
  if (ended.code != 0 || !fs::exists(program)) {
    return {{}, fmt::format("{} does not compile:{}", answer_file, shortened(ended.printed, folder))};
  }
  return {program, ""};
}

}  // namespace baton::exercise

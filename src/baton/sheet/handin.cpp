#include "baton/sheet/handin.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "baton/report/report.h"
#include "baton/sheet/texts.h"
#include "baton/sheet/twins.h"

namespace baton::sheet {

Files code_of(const Sheet& sheet, const std::vector<Task>& tasks) {
  std::set<std::string> wanted;
  for (const Task& task : tasks) {
    wanted.insert(task.programs.begin(), task.programs.end());
  }
  Files files;
  const std::string own = sheet.id + "/";
  for (const auto& [path, text] : program_texts()) {
    const bool common = path.find('/') == std::string_view::npos;
    if (common) {
      files[fmt::format("code/{}", path)] = text;
    } else if (path.starts_with(own) && wanted.contains(std::string(path.substr(own.size())))) {
      files[fmt::format("code/{}", path.substr(own.size()))] = text;
    }
  }
  std::string launches;
  for (const Script& script : sheet.scripts) {
    if (!wanted.contains(script.file)) {
      continue;
    }
    const bool power = script.steps == 0;
    std::string command = "baton train";
    const lab::JobWords usual;
    for (const lab::JobField& field : lab::job_fields()) {
      if (script.words.*field.word != usual.*field.word) {
        command += fmt::format(" --{} '{}'", field.name, script.words.*field.word);
      }
    }
    files["code/" + script.file] = power ? matrix_power_twin(10000, 10, 0)
                                         : training_twin(script.words,
                                                         {.steps = script.steps, .warmup = script.warmup, .command = command});
    launches += fmt::format("    {}\n", power ? "python3 " + script.file : twin_launch(script.words, script.file));
  }
  files["code/README.md"] = fmt::format(
      "# Code of {}\n\nC++ programs on Baton's library (`cmake --install` of Baton first):\n\n"
      "    cmake -S . -B build -DCMAKE_PREFIX_PATH=WHERE-BATON-IS && cmake --build build\n    build/PROGRAM [cpu|cuda] [DIM]\n\n"
      "PyTorch scripts, which need nothing but PyTorch and take `--device cpu` where there is no GPU:\n\n{}",
      sheet.id, launches);
  return files;
}

Files files_of(const Sheet& sheet, const std::vector<Task>& tasks, const Document& document, const Evidence& evidence) {
  Files files = code_of(sheet, tasks);
  files["handin.md"] = to_markdown(document, files);
  files["handin.tex"] = to_latex(document);
  files["handin.html"] = to_html(document);
  for (const Source* source : {&evidence.first, &evidence.beside}) {
    for (const auto& [id, result] : source->results) {
      files[fmt::format("results/{}-{}.csv", id, source->simulated ? "simulated" : "measured")] = report::to_csv(result);
    }
  }
  return files;
}

}  // namespace baton::sheet

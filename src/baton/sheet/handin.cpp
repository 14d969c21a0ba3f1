#include "baton/sheet/handin.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "baton/lab/rows.h"
#include "baton/lab/stack_size.h"
#include "baton/model/zoo.h"
#include "baton/report/report.h"
#include "baton/sheet/texts.h"
#include "baton/sheet/twins.h"

namespace baton::sheet {
namespace {

namespace key = lab::key;

std::vector<lab::Record> rows_of(const Evidence& evidence, const std::string& experiment) {
  const auto found = evidence.first.results.find(experiment);
  std::vector<lab::Record> rows = found == evidence.first.results.end() ? std::vector<lab::Record>() : found->second.rows;
  std::erase_if(rows, [](const lab::Record& row) { return row.has(key::reason); });
  return rows;
}

/// The script's model in the size that was run for the document: its own if that is among the rows, else the largest one.
model::ModelName model_of(const Script& script, const std::vector<lab::Record>& rows) {
  model::ModelName model = script.spec.model;
  for (const lab::Record& row : rows) {
    model::ModelName size = model;
    if (row.has(key::case_)) {
      const std::string name = lab::text(row, key::case_);
      const std::optional<lab::StackSize> stack = lab::StackSize::parse(name);
      size = stack ? stack->model() : model::ModelName(name);
    } else if (row.has(key::dim)) {
      const model::ModelSetting* depth = script.spec.model.settings().find("depth");
      check(depth != nullptr, "the model of {} has no depth", script.file);
      size = model::mlp_name(row.value(key::dim, std::int64_t{1}), depth->whole("depth", 1, model::max_depth));
    }
    if (size == script.spec.model) {
      return size;
    }
    model = size;
  }
  return model;
}

/// The rows of the matrices that csye-hw4 raises: its script has them whatever was measured.
constexpr std::int64_t sheets_size = 10000;

/// The values that the rows of the sheet's experiments have under a key, each once.
std::vector<std::string> sizes_of(const Evidence& evidence, const std::vector<SheetTask>& tasks, const std::string& column) {
  std::vector<std::string> sizes;
  for (const SheetTask& task : tasks) {
    for (const std::string& id : task.experiments) {
      for (const std::string& word : lab::words_of(rows_of(evidence, id), column)) {
        if (std::find(sizes.begin(), sizes.end(), word) == sizes.end()) {
          sizes.push_back(word);
        }
      }
    }
  }
  return sizes;
}

/// The program with `NAME = …;` set to this value, where it has such a line.
std::string with_value(std::string program, const std::string& name, const std::string& value) {
  const std::string begin = name + " = ";
  const std::size_t at = program.find(begin);
  if (at != std::string::npos && !value.empty()) {
    program.replace(at + begin.size(), program.find(';', at) - at - begin.size(), value);
  }
  return program;
}

/// The program with the sizes of the document's tables instead of the sheet's own.
std::string in_the_size_of_the_tables(std::string program, const Evidence& evidence, const std::vector<SheetTask>& tasks) {
  const std::vector<std::string> dims = sizes_of(evidence, tasks, key::dim);
  const std::vector<std::string> sizes = sizes_of(evidence, tasks, key::size);
  const auto quoted = [](const std::vector<std::string>& names) {
    std::string list;
    for (const std::string& name : names) {
      list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", name);
    }
    return list.empty() ? "" : "{" + list + "}";
  };
  const std::vector<lab::Record> split = rows_of(evidence, "four-way-split");
  const std::vector<std::string> models = lab::words_of(split, key::model);
  program = with_value(std::move(program), "models_of_the_tables", quoted(models));
  program = with_value(std::move(program), "batch_of_the_tables",
                       split.empty() ? "" : fmt::format("{}", split.back().value(key::batch, 120)));
  program = with_value(std::move(program), "dim_of_the_tables", dims.empty() ? "" : fmt::format("\"{}\"", dims.back()));
  program = with_value(std::move(program), "size_of_the_tables", sizes.empty() ? "" : sizes.back());
  return with_value(std::move(program), "cases_of_the_tables", quoted(sizes_of(evidence, tasks, key::case_)));
}

}  // namespace

Files code_of(const Sheet& sheet, const std::vector<SheetTask>& tasks, const Evidence& evidence) {
  std::set<std::string> wanted;
  for (const SheetTask& task : tasks) {
    wanted.insert(task.programs.begin(), task.programs.end());
  }
  Files files;
  const std::string own = sheet.id + "/";
  for (const auto& [path, text] : program_texts()) {
    const bool common = path.find('/') == std::string_view::npos;
    const bool of_sheet = path.starts_with(own) && wanted.contains(std::string(path.substr(own.size())));
    if (common || of_sheet) {
      files[fmt::format("code/{}", common ? path : path.substr(own.size()))] = in_the_size_of_the_tables(std::string(text),
                                                                                                         evidence, tasks);
    }
  }
  std::string launches;
  for (const Script& script : sheet.scripts) {
    if (!wanted.contains(script.file)) {
      continue;
    }
    const std::vector<lab::Record> rows = rows_of(evidence, script.experiment);
    if (script.steps == 0) {
      const std::int64_t measured = rows.empty() ? sheets_size : rows.back().value(key::size, sheets_size);
      const std::string resnet = rows.empty() ? "resnet:50,image=128,classes=1000" : rows.back().value(key::model, "");
      const std::int64_t batch = rows.empty() ? 120 : rows.back().value(key::batch, 120);
      files["code/" + script.file] = script.experiment == "matrix-power" ? matrix_power_twin(sheets_size, 10, 0, script.file)
                                                                         : four_way_split_twin(resnet, batch, script.file);
      launches += fmt::format("    python3 {}\n", script.file);
      if (script.experiment == "matrix-power" && measured != sheets_size) {
        launches += fmt::format("    python3 {} --size {}  # the size that the document measured\n", script.file, measured);
      }
      continue;
    }
    job::JobSpec spec = script.spec;
    spec.model = model_of(script, rows);
    const std::string command = "baton train " + job::flags_of(spec, [](const std::string& text) { return "'" + text + "'"; });
    files["code/" + script.file] = training_twin(
        spec, {.steps = script.steps, .warmup = script.warmup, .command = command, .file = script.file, .table = script.table});
    launches += fmt::format("    {}\n", script.table.empty() ? twin_launch(spec, script.file) : script.table);
  }
  files["code/README.md"] = fmt::format(
      "# Code of {}\n\nC++ programs on Baton's library (`cmake --install` of Baton first):\n\n"
      "    cmake -S . -B build -DCMAKE_PREFIX_PATH=WHERE-BATON-IS && cmake --build build\n    build/PROGRAM [cpu|cuda] [SIZE]\n\n"
      "Without SIZE they use the sizes of the document's tables.\n\n"
      "PyTorch scripts. They need only PyTorch; without a GPU give them `--device cpu` "
      "(`--help` lists the flags that change sizes):\n\n{}",
      sheet.id, launches);
  return files;
}

Files files_of(const Sheet& sheet, const std::vector<SheetTask>& tasks, const Document& document, const Evidence& evidence) {
  Files files = code_of(sheet, tasks, evidence);
  files["handin.md"] = to_markdown(document, files);
  files["handin.tex"] = to_latex(document);
  files["handin.html"] = to_html(document);
  for (const ResultSet* source : {&evidence.first, &evidence.beside}) {
    for (const auto& [id, result] : source->results) {
      files[fmt::format("results/{}-{}.csv", id, source->simulated ? "simulated" : "measured")] = report::to_csv(result);
    }
  }
  return files;
}

}  // namespace baton::sheet

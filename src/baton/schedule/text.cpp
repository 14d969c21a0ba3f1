#include "baton/schedule/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/schedule/run.h"

namespace baton::schedule {
namespace {

constexpr std::string_view letters = "FBIW";

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && blank(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

/// Reads digits off the front of `text`.
bool read_number(std::string_view& text, std::int32_t& number) {
  if (text.empty() || text.front() < '0' || text.front() > '9') {
    return false;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return error == std::errc();
}

std::optional<Action> parse_action(std::string_view text) {
  Action action;
  if (!read_number(text, action.stage) || text.empty()) {
    return std::nullopt;
  }
  const std::size_t kind = letters.find(text.front());
  text.remove_prefix(1);
  if (kind == std::string_view::npos || !read_number(text, action.micro_batch) || !text.empty()) {
    return std::nullopt;
  }
  action.kind = static_cast<Computation>(kind);
  return action;
}

}  // namespace

std::string to_text(const Action& action) {
  return fmt::format("{}{}{}", action.stage, letters[static_cast<std::size_t>(action.kind)], action.micro_batch);
}

std::string to_csv(const Grid& grid) {
  std::string out;
  for (const auto& row : grid.rows) {
    for (std::size_t slot = 0; slot < row.size(); ++slot) {
      out += slot == 0 ? "" : ",";
      out += row[slot] ? to_text(*row[slot]) : "";
    }
    out += '\n';
  }
  return out;
}

Grid parse_csv(std::string_view text) {
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  if (last == std::string_view::npos) {
    throw usage_error("the schedule is empty: it has a line for each device, with cells such as 0F0, 0B0");
  }
  text = text.substr(0, text.find('\n', last));  // empty lines at the end are ignored
  std::size_t lines = 0;
  std::size_t slots = 0;
  for_each_part(text, '\n', [&](std::size_t, std::string_view line) {
    ++lines;
    slots = std::max(slots, static_cast<std::size_t>(std::count(line.begin(), line.end(), ',')) + 1);
  });
  if (lines > static_cast<std::size_t>(most_cells) / slots) {
    throw usage_error("a schedule of {} lines with up to {} cells is too large", lines, slots);
  }
  const std::size_t cell_count = lines * slots;
  // If lines are equally long, each cell has a comma or a line's end of its own.
  if (cell_count > std::max<std::size_t>(1 << 16, 2 * text.size())) {
    throw usage_error("the longest of the schedule's {} lines has {} cells, and the others far fewer: fill them up with commas",
                      lines, slots);
  }
  Grid grid;
  grid.rows.resize(lines);
  for (std::vector<std::optional<Action>>& row : grid.rows) {  // each where it stays: a copy of one would be a second table
    row.resize(slots);
  }
  for_each_part(text, '\n', [&](std::size_t d, std::string_view line) {
    if (trimmed(line).empty()) {
      throw usage_error("line {} of the schedule is empty: each line is a device", d + 1);
    }
    for_each_part(line, ',', [&](std::size_t slot, std::string_view part) {
      const std::string_view cell = trimmed(part);
      if (cell.empty()) {
        return;
      }
      const std::optional<Action> action = parse_action(cell);
      if (!action) {
        throw usage_error(
            "line {}, cell {} of the schedule is '{}', but an action is a stage, F, B, I or W, and a "
            "micro-batch, as in 0F0{}",
            d + 1, slot + 1, cell.substr(0, 40),
            cell.find('_') != std::string_view::npos || cell.find("SHARD") != std::string_view::npos
                ? "; leave messages and gathers out, they are added"
                : "");
      }
      // Every stage and every micro-batch needs a cell of its own.
      const std::int32_t largest = std::max(action->stage, action->micro_batch);
      if (static_cast<std::size_t>(largest) >= cell_count) {
        throw usage_error("line {}, cell {} of the schedule is '{}', but a table of {} cells cannot hold that many {}", d + 1,
                          slot + 1, cell, cell_count, action->stage == largest ? "stages" : "micro-batches");
      }
      grid.rows[d][slot] = action;
    });
  });
  return grid;
}

std::string to_text(const Grid& grid) {
  bool own = true;  // each device has the stage of its number, and no other
  for (std::size_t d = 0; d < grid.rows.size(); ++d) {
    for (const std::optional<Action>& cell : grid.rows[d]) {
      own &= !cell || cell->stage == static_cast<std::int32_t>(d);
    }
  }
  const auto name = [&](const Action& action) {
    return !own ? to_text(action) : fmt::format("{}{}", letters[static_cast<std::size_t>(action.kind)], action.micro_batch);
  };
  std::size_t width = 1;
  for (const auto& row : grid.rows) {
    for (const std::optional<Action>& cell : row) {
      width = std::max(width, cell ? name(*cell).size() : 0);
    }
  }
  std::string out;
  const std::size_t digits = fmt::formatted_size("{}", grid.rows.size() - 1);
  for (std::size_t d = 0; d < grid.rows.size(); ++d) {
    out += fmt::format("device {:>{}} ", d, digits);
    for (const std::optional<Action>& cell : grid.rows[d]) {
      out += fmt::format(" {:<{}}", cell ? name(*cell) : std::string(width, '.'), width);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  return out;
}

}  // namespace baton::schedule

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "baton/sheet/theory.h"
#include "baton/training/job.h"

namespace baton::sheet {

/// A sentence on how to read a column: it is shown with the column, or if the column is missing; without a column, always.
/// `{parameters}` stands for the bytes of the parameters that were trained; a sentence with it is left out where the records do not
/// say them.
struct Reading {
  std::string column;
  std::string text;
  bool if_missing = false;
};

/// A task of a sheet: what is measured for it, what is asked and shown.
struct SheetTask {
  std::string heading;
  std::string option = {};  // its letter, if the student chooses one of several tasks
  std::vector<std::string> experiments = {};
  std::vector<AskedOn> questions = {};
  std::vector<std::string> columns =
      {};  // the columns of its tables, in order; those that an experiment does not have are left out
  std::vector<std::string> gpu_columns = {};  // the columns of a second table, if drivers of GPUs report something
  std::vector<std::string> noise_columns =
      {};  // the columns of a table that is measured on this machine in addition to a simulation, which has no noise
  std::vector<Reading> reading = {};       // how columns are to be read, below the tables
  std::size_t plots = 1;                   // the most plots per experiment
  std::size_t most_words = 0;              // the most words that all its answers together may have; 0: no limit but each answer's
  std::vector<std::string> programs = {};  // the programs of code/ that do it
  std::string listed_class = {};           // the class of a script that spreads layers over devices, which is shown
  std::string note = {};                   // what differs from the sheet, before the tables
  std::int64_t split_over = 0;             // the devices that it asks to split models over; named even if there are fewer
  bool names_size = false;                 // the sheet names the size of what is run
  bool shares_of_step = false;             // draws the shares of computing and communication instead of the experiment's plots
};

/// A PyTorch script of a sheet: the settings of its job; without steps, the script that the experiment has of its own.
struct Script {
  std::string file;
  job::JobSpec spec = {};
  std::int64_t steps = 30;
  std::int64_t warmup = 5;
  std::string experiment = {};  // whose sizes it has; empty: those of its words
  std::string table = {};       // the command that makes the whole table of its task
};

struct Sheet {
  std::string id;
  std::string title;
  int most_pages = 6;
  std::vector<SheetTask> tasks;
  std::vector<Script> scripts;
};

/// An answer has at most this many words.
inline constexpr std::size_t most_words_of_answer = 90;

/// Every sheet, in the order in which they are listed.
const std::vector<Sheet>& sheets();
/// Finds one by id; a usage error lists them.
const Sheet& sheet_by_id(std::string_view id);
/// Its options, as A, B and C; none if it leaves no choice.
std::vector<std::string> options_of(const Sheet& sheet);
/// The tasks of a sheet with the option that was chosen, which must be one of its own.
std::vector<SheetTask> tasks_of(const Sheet& sheet, const std::string& option);

}  // namespace baton::sheet

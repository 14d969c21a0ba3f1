#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "baton/training/job.h"

/// Tables of measured times that others published, as jobs of Baton's.
namespace baton::predict {

/// A CSV file: what its first line calls the columns, and the rows with the line that each begins at.
struct PublishedTable {
  struct Row {
    std::size_t line = 0;
    std::vector<std::string> cells;
  };
  std::string source;  // the file's name without its ending
  std::vector<std::string> columns;
  std::vector<Row> rows;
};
/// Columns are separated by commas, semicolons or tabs; cells may be quoted. A usage error names the line of a row that has more
/// cells than there are columns, and of a quote that is not closed.
PublishedTable parse_table(std::string_view text, std::string source);

/// One all_reduce of float32 elements between devices of one node.
struct PublishedAllReduce {
  std::string cluster;
  std::int64_t devices = 2;
  std::int64_t bytes = 0;
  bool ring = false;  // not summed by a switch
};

/// One kernel on one device.
struct PublishedKernel {
  enum class Kind : std::uint8_t { attention, layer_norm, rms_norm };
  Kind kind = Kind::attention;
  bool backward = false;
  std::string cluster;
  std::string software;
  std::string precision = "bf16";
  bool causal = true;
  std::int64_t batch = 1;
  std::int64_t positions = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t features = 1;  // features of a head, or of a row that is normed
};

/// Jobs of which the published one is the fastest: the table leaves something open, as the micro-batch.
using PublishedJobs = std::vector<job::JobSpec>;

/// A time that somebody measured, and what Baton has to simulate for it.
struct PublishedCase {
  std::string source;
  std::size_t line = 0;
  std::string what;              // in words
  double seconds = 0;            // measured
  std::optional<double> memory;  // GiB per device, if it is published
  bool fitted = false;  // true if constants may have been chosen by it: every tenth row, from the first on, of 20 rows or more
  std::vector<std::string> assumed;  // what the table does not say of a training step: "sequence 2048", "bf16"
  std::variant<PublishedJobs, PublishedAllReduce, PublishedKernel> job;
  std::string reason;  // why it cannot be simulated; empty: it can
};

struct PublishedDefaults {
  std::string cluster;   // for tables that name no device
  std::string software;  // instead of the one that a table's columns suggest
};

/// The cases of a table, by its columns. A usage error, in which the table is named, lists the columns that a table of this kind
/// lacks, or names one that stands twice. Rows that Baton has no axes for have a reason, and so have rows that cannot be read.
std::vector<PublishedCase> published_cases(const PublishedTable& table, const PublishedDefaults& defaults);

/// The cluster file for a device as tables name it ("H100-SXM5", "a100_40gb"); empty if none is known.
std::string cluster_of_device(std::string_view text);

}  // namespace baton::predict

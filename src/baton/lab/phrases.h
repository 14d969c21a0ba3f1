#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "baton/lab/json.h"

/// Pieces of sentences that several answers are made of.
namespace baton::lab {

/// "1 device", "4 devices".
std::string devices_text(std::int64_t count);
/// A device by its name in a plan: "GPU 1" for "RTX-3090:1" if it is a GPU, "core 1" for "core:1"; cores of this machine keep
/// theirs, "cpu:1".
std::string device_name_text(const std::string& name, bool gpu);
/// "1, 2 and 4".
std::string listing(const std::vector<std::string>& words);
/// A number with three significant figures: "0.0123", "1.10", "11.0", "1234".
std::string three_figures(double value);
/// A number with two significant figures and its sign, without a power of ten: "+0.000063".
std::string signed_figures(double value);
/// A time in nanoseconds as people read it; negative times have a sign.
std::string duration_text(double nanoseconds);
/// Bytes and flops likewise.
std::string bytes_text(double bytes);
std::string flops_text(double flops);

/// A text with every occurrence of one piece put otherwise.
std::string replaced(std::string text, std::string_view old, std::string_view put);

/// " (devices shared cores)", " (simulated)" or both after what is said of such rows; empty after what is said of others.
std::string origin_mark(const std::vector<Record>& rows);

/// An answer in which " (simulated)" stands once: what holds of all its numbers need not be said of each.
std::string simulated_once(std::string answer);

/// The trained job, in one line: model, batch, optimizer, precision and seed; several values of one are listed. Empty if no
/// row says.
std::string trained_line(const std::vector<Record>& rows);

/// A sentence on what is unknown because points have too few instances, as after an interruption; empty if there are
/// enough.
std::string few_instances_finding(const std::vector<Record>& rows);

/// That rows were measured while such work ran (their `others_share`); empty if none was.
std::string other_processes_finding(const std::vector<Record>& rows);

}  // namespace baton::lab

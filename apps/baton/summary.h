#pragma once

#include <string>

#include "baton/training/training.h"

namespace baton::app {

/// "cores 0,1".
std::string describe_cores(const cluster::Device& device);

/// "0.12345"; "nan" for NaN, whatever its sign bit.
std::string loss_text(double loss);

/// A note if a job uses only one of several devices; otherwise empty.
std::string unused_note(const training::Job& job);

/// A table for the terminal: per device the parts of its step, its memory and its bytes.
std::string device_table(const training::Training& run);

}  // namespace baton::app

#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "baton/cuda/product_shape.h"

/// The algorithm of a product is chosen by timing. Choices are kept in a file, so that the next process makes the same ones without
/// timing again. Nothing here needs a GPU.
namespace baton::cuda {

/// The facts on which a choice depends, on devices of one kind.
struct ChoiceKey {
  ProductShape shape;
  std::int64_t workspace = 0;

  auto operator<=>(const ChoiceKey&) const = default;
};

struct Choice {
  std::array<std::uint64_t, 8> algorithm{};  // as the library wrote it; only the same version of it may read it
  bool turned = false;                       // B is turned before it is multiplied

  bool operator==(const Choice&) const = default;
};

using Choices = std::map<ChoiceKey, Choice>;

/// The text of a file of choices; `kind`, of one line, says on what they hold.
std::string format_choices(const Choices& choices, std::string_view kind);

/// The choices in a file. Empty if it is of another kind, cut off or changed anywhere.
Choices parse_choices(std::string_view text, std::string_view kind);

/// The folder for files of choices: what `BATON_CUDA_CACHE` names, else the user's cache folder; empty if it says `off`, or
/// if there is none. A usage error says that its value is neither.
std::filesystem::path choices_folder();

/// The choices for devices of one kind: those that a file in `folder` held, and those made since. The file is never needed: if
/// it cannot be read or written, or the folder is empty, choices are kept for the process.
class KeptChoices {
 public:
  KeptChoices(const std::filesystem::path& folder, std::string kind);

  /// The kept choice, or null if there is none. It holds until the next `keep`.
  const Choice* find(const ChoiceKey& key) const;
  /// True if the choice was made by this process, or the library has accepted it: a choice from a file must be checked first.
  bool is_sure(const ChoiceKey& key) const { return sure_.contains(key); }
  void confirm(const ChoiceKey& key) { sure_.insert(key); }
  /// Keeps a choice and writes the file again, whole or not at all. Choices that other processes have written meanwhile
  /// stay in it, and of two for one product the first stays, unless the library refused it here.
  void keep(const ChoiceKey& key, const Choice& choice);

  const std::filesystem::path& file() const { return file_; }

 private:
  Choices read() const;

  std::filesystem::path file_;  // empty: none
  std::string kind_;
  Choices choices_;
  std::set<ChoiceKey> sure_;
};

}  // namespace baton::cuda

#include "baton/cost/software.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"
#include "baton/base/toml.h"

namespace baton::cost {
namespace {

/// One table of the file: every key must be asked for, so that a misspelt one is found.
class Entries {
 public:
  Entries(const toml::table* table, std::string where) : table_(table), where_(std::move(where)) {}
  Entries(const Entries&) = delete;
  Entries& operator=(const Entries&) = delete;

  void number(const char* key, double& value, double high) {
    if (const toml::node* node = find(key)) {
      const auto given = node->value<double>();
      if (!given || !(*given >= 0) || *given > high) {
        throw usage_error("'{}' in {} must be a number from 0 to {}", key, where_, high);
      }
      value = *given;
    }
  }
  void whole(const char* key, std::int64_t& value) {
    double given = static_cast<double>(value);
    number(key, given, 1 << 20);
    value = std::max<std::int64_t>(1, static_cast<std::int64_t>(given));
  }
  void flag(const char* key, bool& value) {
    if (const toml::node* node = find(key)) {
      if (!node->is_boolean()) {
        throw usage_error("'{}' in {} must be true or false", key, where_);
      }
      value = *node->value<bool>();
    }
  }
  void time(const char* key, Nanoseconds& value) {
    if (const toml::node* node = find(key)) {
      const auto given = node->value_exact<std::string>();
      value = parse_time(given.value_or(""), fmt::format("'{}' in {}", key, where_));
    }
  }
  void done() const {
    if (table_ == nullptr) {
      return;
    }
    for (const auto& [key, node] : *table_) {
      if (!node.is_table() && std::find(known_.begin(), known_.end(), key.str()) == known_.end()) {
        throw usage_error("{} has '{}', but takes {}", where_, key.str(), either(known_));
      }
    }
  }

 private:
  const toml::node* find(const char* key) {
    known_.emplace_back(key);
    return table_ == nullptr ? nullptr : table_->get(key);
  }

  const toml::table* table_;
  std::string where_;
  std::vector<std::string> known_;
};

void read_kernels(const toml::table* table, const std::string& where, Kernels& kernels) {
  Entries entries(table, where);
  entries.number("products", kernels.products, 2);
  entries.number("unaligned", kernels.unaligned, 100);
  entries.number("attention_forward", kernels.attention_forward, 1);
  entries.number("attention_backward", kernels.attention_backward, 1);
  entries.number("attention_half", kernels.attention_half, 1e6);
  entries.done();
}

/// A profile's tables, and how messages name them.
struct Profile {
  const toml::table& root;
  const std::string& what;

  /// nullptr if there is none.
  const toml::table* table(const char* key) const { return root.contains(key) ? root.get(key)->as_table() : nullptr; }
  std::string where(const char* key) const { return fmt::format("[{}] of {}", key, what); }
  Entries entries(const char* key) const { return {table(key), where(key)}; }
};

void require_known(const toml::table& root, const std::string& what) {
  const std::vector<std::string> known{"summary", "job", "host", "kernels", "memory", "scores", "model", "products", "reserved"};
  for (const auto& [key, node] : root) {
    if (std::find(known.begin(), known.end(), key.str()) == known.end()) {
      throw usage_error("{} has '{}', but takes {}", what, key.str(), either(known));
    }
    if (key.str() != "summary" && !node.is_table()) {
      throw usage_error("'{}' of {} must be a table: [{}]", key.str(), what, key.str());
    }
  }
}

void read_job(const Profile& profile, Software& software) {
  const toml::table* job = profile.table("job");
  if (job == nullptr) {
    return;
  }
  for (const auto& [key, node] : *job) {
    const auto word = node.value_exact<std::string>();
    if (!word) {
      throw usage_error("'{}' in {} must be text, as on the command line", key.str(), profile.where("job"));
    }
    software.job.emplace_back(std::string(key.str()), *word);
  }
}

void read_host(const Profile& profile, Software& software) {
  Entries host = profile.entries("host");
  host.time("forward", software.host_forward);
  software.host_recompute = software.host_forward;
  software.host_backward = software.host_forward;
  host.time("recompute", software.host_recompute);
  host.time("backward", software.host_backward);
  host.time("micro_batch", software.host_micro_batch);
  host.time("collective", software.host_collective);
  host.time("message", software.host_message);
  host.time("update", software.host_update);
  host.flag("waits", software.waits);
  host.flag("waits_for_batches", software.waits_for_batches);
  host.flag("streams", software.streams);
  host.done();
}

/// Reads the settings of all devices, then those of [kernels.DEVICE] for one.
void read_kernels(const Profile& profile, Software& software) {
  const toml::table* kernels = profile.table("kernels");
  read_kernels(kernels, profile.where("kernels"), software.kernels);
  if (kernels == nullptr) {
    return;
  }
  for (const auto& [key, node] : *kernels) {
    if (const toml::table* own = node.as_table()) {
      Kernels of_device = software.kernels;
      read_kernels(own, fmt::format("[kernels.{}] of {}", key.str(), profile.what), of_device);
      software.kernels_of.emplace(std::string(key.str()), of_device);
    }
  }
}

void read_memory(const Profile& profile, Software& software) {
  Entries memory = profile.entries("memory");
  memory.number("elementwise", software.elementwise, 100);
  memory.number("norms", software.norms, 100);
  software.norm_gradients = software.norms;
  memory.number("norm_gradients", software.norm_gradients, 100);
  memory.number("loss", software.loss_bytes, 1000);
  memory.number("update", software.update_passes, 100);
  memory.done();
}

void read_scores(const Profile& profile, Software& software) {
  Entries scores = profile.entries("scores");
  scores.number("forward", software.scores_forward, 100);
  scores.number("backward", software.scores_backward, 100);
  scores.whole("multiple", software.scores_multiple);
  scores.number("ops", software.unfused_ops, 100);
  scores.number("passes", software.unfused_passes, 100);
  scores.done();
}

void read_model(const Profile& profile, Software& software) {
  Entries model = profile.entries("model");
  model.flag("joined_projections", software.joined_projections);
  model.flag("narrow_stream", software.narrow_stream);
  model.whole("vocabulary", software.vocabulary);
  model.flag("pads_alone", software.pads_alone);
  model.done();
}

void read_products(const Profile& profile, Software& software) {
  Entries products = profile.entries("products");
  products.number("recomputed", software.recomputed_products, 1);
  products.flag("fp8", software.fp8);
  products.number("casts", software.casts, 100);
  products.done();
}

void read_reserved(const Profile& profile, Software& software) {
  software.reserves.counted = profile.root.contains("reserved");
  Entries reserved = profile.entries("reserved");
  reserved.flag("unread", software.reserves.unread);
  reserved.flag("last_stage", software.reserves.last_stage);
  reserved.number("loss_gradients", software.reserves.loss_gradients, 100);
  software.reserves.loss_gradients_divided = software.reserves.loss_gradients;
  reserved.number("loss_gradients_divided", software.reserves.loss_gradients_divided, 100);
  reserved.number("update_copies", software.reserves.update_copies, 100);
  reserved.done();
}

}  // namespace

const Kernels& Software::on(std::string_view product) const {
  const auto found = kernels_of.find(product);
  return found == kernels_of.end() ? kernels : found->second;
}

Software parse_software(std::string_view text, std::string name) {
  const std::string what = "the software profile " + name;
  const toml::table root = parse_toml(text, what);
  require_known(root, what);
  Software software;
  software.name = std::move(name);
  software.summary = root["summary"].value_or(std::string());
  const Profile profile{root, what};
  read_job(profile, software);
  read_host(profile, software);
  read_kernels(profile, software);
  read_memory(profile, software);
  read_scores(profile, software);
  read_model(profile, software);
  read_products(profile, software);
  read_reserved(profile, software);
  return software;
}

const std::vector<Software>& software_profiles() {
  static const std::vector<Software> list = [] {
    std::vector<Software> all;
    for (const auto& [name, text] : software_texts()) {
      all.push_back(parse_software(text, std::string(name)));
    }
    return all;
  }();
  return list;
}

Software software_by_name(std::string_view whole) {
  const std::vector<std::string_view> parts = split(whole, '+');
  const std::string_view text = parts[0];
  if (parts.size() > 1) {
    Software changed = software_by_name(text);
    const std::vector<std::string> changes{"fp8", "selective", "scores", "keep"};
    for (std::size_t i = 1; i < parts.size(); ++i) {
      switch (index_of_name(changes, parts[i], "change of a software profile")) {
        case 0:
          changed.fp8 = true;
          break;
        case 1:
          changed.recomputed_products = 0.5;
          break;
        case 2:
          changed.scores_backward += changed.scores_forward;
          break;
        default:
          changed.recomputed_products = 0;
      }
    }
    changed.name = whole;
    return changed;
  }
  if (text.empty() || canonical(text) == "baton") {
    return {};
  }
  if (text.find('/') != std::string_view::npos || text.ends_with(".toml")) {
    const std::filesystem::path file(text);
    return parse_software(read_file(file, "the software profile " + file.string(), most_toml), file.stem().string());
  }
  std::vector<std::string> names{"baton"};
  for (const Software& known : software_profiles()) {
    if (known.name == canonical(text)) {
      return known;
    }
    names.push_back(known.name);
  }
  throw usage_error("unknown software '{}'{}: choose {}, or a file of your own that ends in .toml", text, did_you_mean(text, names),
                    either(names));
}

}  // namespace baton::cost

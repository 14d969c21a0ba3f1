#include "baton/cluster/blueprint.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"
#include "baton/base/toml.h"
#include "baton/cluster/catalogue.h"

namespace baton::cluster {
namespace {

/// One table of the file: every key must be asked for, so that a misspelt one is found.
class Section {
 public:
  Section(const toml::table& root, std::string file, std::string name) : file_(std::move(file)), name_(std::move(name)) {
    if (const toml::node* node = root.get(name_)) {
      if (!node->is_table()) {
        throw usage_error("'{}' of the cluster {} must be a table: [{}]", name_, file_, name_);
      }
      table_ = node->as_table();
    }
  }

  bool given() const { return table_ != nullptr; }
  const toml::table& table() const { return *table_; }

  /// Returns the value that `parse` reads from the text; `otherwise` if the key is not given.
  template <typename Value, typename Parse>
  Value get(const std::string& key, Value otherwise, Parse parse) {
    known_.push_back(key);
    const toml::node* node = table_ == nullptr ? nullptr : table_->get(key);
    if (node == nullptr) {
      return otherwise;
    }
    std::string text;
    if (const auto string = node->value_exact<std::string>()) {
      text = *string;
    } else if (const auto whole = node->value_exact<std::int64_t>()) {
      text = fmt::format("{}", *whole);
    } else if (const auto real = node->value_exact<double>()) {
      text = fmt::format("{}", *real);
    }
    return parse(text, fmt::format("{}.{} of the cluster {}", name_, key, file_));
  }
  void has_part(const std::string& key) { known_.push_back(key); }

  void done() const {
    if (table_ == nullptr) {
      return;
    }
    for (const auto& [key, node] : *table_) {
      if (std::find(known_.begin(), known_.end(), key.str()) == known_.end()) {
        throw usage_error("[{}] of the cluster {} has '{}', but takes {}", name_, file_, key.str(), either(known_));
      }
    }
  }

 private:
  std::string file_;
  std::string name_;
  const toml::table* table_ = nullptr;
  std::vector<std::string> known_;
};

/// `[[port.piece]]` tables: from, latency, bandwidth.
std::vector<Link::SizeRange> read_pieces(const Section& section, const std::string& name) {
  std::vector<Link::SizeRange> pieces;
  const toml::node* node = section.given() ? section.table().get("piece") : nullptr;
  if (node == nullptr) {
    return pieces;
  }
  if (!node->is_array_of_tables()) {
    throw usage_error("'piece' of the cluster {} must be a list of tables: [[port.piece]]", name);
  }
  for (const toml::node& one : *node->as_array()) {
    toml::table wrapped;
    wrapped.insert("piece", *one.as_table());
    Section piece(wrapped, name, "piece");
    pieces.push_back({piece.get("from", Bytes(0), parse_bytes), piece.get("latency", Nanoseconds(0), parse_time),
                      piece.get("bandwidth", 0.0, parse_bandwidth)});
    piece.done();
    if (pieces.size() > 1 && pieces.back().from <= pieces[pieces.size() - 2].from) {
      throw usage_error("the pieces of a link of the cluster {} must begin at growing sizes", name);
    }
  }
  return pieces;
}

double share_of_one(const std::string& text, const std::string& what) { return parse_number(text, what, 0.001, 1); }

Link read_link(Section& section, const std::string& name) {
  Link link{section.get("latency", Nanoseconds(0), parse_time), section.get("bandwidth", 0.0, parse_bandwidth),
            read_pieces(section, name), section.get("core", 0.0, parse_core)};
  section.has_part("piece");
  link.bandwidth *= section.get("efficiency", 1.0, share_of_one);
  return link;
}

/// "0-3 x2": two links between the devices 0 and 3 of a node.
Mesh::Pair parse_pair(const std::string& text, const std::string& what, std::int64_t in_node) {
  const std::size_t dash = text.find('-');
  const std::size_t times = text.find(" x");
  if (dash == std::string::npos) {
    throw usage_error("{} has '{}': write two devices of a node, as in 0-3, or 0-3 x2 for two links", what, text);
  }
  const auto device = [&](const std::string& word) { return static_cast<int>(parse_integer(word, what, 0, in_node - 1)); };
  const std::string second = text.substr(dash + 1, times == std::string::npos ? times : times - dash - 1);
  Mesh::Pair pair{device(text.substr(0, dash)), device(second), 1};
  if (times != std::string::npos) {
    pair.links = static_cast<int>(parse_integer(text.substr(times + 2), what, 1, 64));
  }
  if (pair.a == pair.b) {
    throw usage_error("{} joins device {} with itself", what, pair.a);
  }
  return pair;
}

Mesh read_mesh(const toml::table& root, const std::string& name, std::int64_t in_node) {
  Section section(root, name, "mesh");
  if (!section.given()) {
    return {};
  }
  constexpr std::int64_t most = 16;
  const std::string what = fmt::format("mesh.links of the cluster {}", name);
  if (in_node > most) {
    throw usage_error("a [mesh] joins at most {} devices, but the cluster {} has {} in a node", most, name, in_node);
  }
  Mesh mesh;
  section.has_part("links");
  const toml::node* links = section.table().get("links");
  if (links == nullptr || !links->is_array() || links->as_array()->empty()) {
    throw usage_error("{} must be a list of pairs of devices, as in [\"0-1\", \"0-3 x2\"]", what);
  }
  for (const toml::node& node : *links->as_array()) {
    mesh.pairs.push_back(parse_pair(node.value_or(std::string()), what, in_node));
  }
  mesh.bandwidth = section.get("bandwidth", 0.0, parse_bandwidth) * section.get("efficiency", 1.0, share_of_one);
  if (mesh.bandwidth == 0) {
    throw usage_error("the [mesh] of the cluster {} has no bandwidth", name);
  }
  mesh.forwarded = section.get("forwarded", 1.0, share_of_one);
  section.done();
  return mesh;
}

/// Names and summaries are printed.
void require_plain(const std::string& text, const std::string& what) {
  if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; })) {
    throw usage_error("{} has characters that a terminal does not show", what);
  }
}

std::int64_t count_of(const std::string& text, const std::string& what) { return parse_integer(text, what, 1, 1 << 20); }

Device read_device(const toml::table& root, const std::string& name, std::int64_t& in_node) {
  Section section(root, name, "device");
  Device device;
  device.name = section.get("name", std::string("device"), [](const std::string& text, const std::string& what) {
    if (text.empty()) {
      throw usage_error("{} must be a text that is not empty", what);
    }
    require_plain(text, what);
    return text;
  });
  in_node = section.get("count", std::int64_t{1}, count_of);
  device.memory = section.get("memory", Bytes(std::int64_t{1} << 50), parse_bytes);
  device.shared_lanes = section.get("lanes", false, [](const std::string& text, const std::string& what) {
    if (text != "separate" && text != "apart" && text != "shared") {  // apart: the old word for separate
      throw usage_error("{} is '{}': choose separate or shared", what, text);
    }
    return text == "shared";
  });
  device.kind = section.get("kind", device.shared_lanes ? DeviceKind::core : DeviceKind::gpu,
                            [](const std::string& text, const std::string& what) {
                              return static_cast<DeviceKind>(index_of_name({"core", "gpu", "other"}, text, what));
                            });
  Speed& speed = device.speed;
  speed.memory_bandwidth = section.get("memory_bandwidth", 0.0, parse_bandwidth);
  speed.launch = section.get("launch", Nanoseconds(0), parse_time);
  speed.efficiency = section.get("efficiency", 1.0, share_of_one);
  speed.memory_efficiency = section.get("memory_efficiency", 1.0, share_of_one);
  speed.multiprocessors = static_cast<int>(section.get("multiprocessors", std::int64_t{0}, count_of));
  speed.half_extent = section.get(
      "half_extent", 0.0, [](const std::string& text, const std::string& what) { return parse_number(text, what, 0, 1e6); });
  section.has_part("rates");
  section.done();
  if (section.table().contains("rates")) {
    Section rates(section.table(), name, "rates");
    for (const RateType type : all_rate_types) {
      const std::string key(to_text(type));
      if (rates.table().contains(key)) {
        speed.rates[type] = rates.get(key, 0.0, parse_rate);
      } else {
        rates.has_part(key);
      }
    }
    rates.done();
  }
  return device;
}

bool is_path(std::string_view text) { return text.find('/') != std::string_view::npos || text.ends_with(".toml"); }

/// A cluster; or, if `network`, a network that joins its nodes.
Blueprint find(std::string_view text, bool network) {
  if (is_path(text)) {
    return read(std::filesystem::path(text));
  }
  std::vector<std::string> names;
  for (const Blueprint& known : catalogue()) {
    if (known.name == canonical(text)) {
      return known;
    }
    if (network ? known.networked && known.in_node == 0 : known.in_node > 0) {
      names.push_back(known.name);
    }
  }
  throw usage_error("unknown {} '{}'{}: choose {}, or a file of your own that ends in .toml", network ? "network" : "cluster", text,
                    did_you_mean(text, names), either(names));
}

}  // namespace

Cluster Blueprint::take(std::int64_t count) const {
  if (in_node == 0) {
    throw usage_error("{} is a network alone: name the nodes it joins, as in dgx-a100+{}", name, name);
  }
  if (!networked && count > in_node) {
    throw usage_error("{} has {} device{} and no network to join several of it: ask for no more, or add one, as in {}+ethernet-10",
                      name, in_node, in_node == 1 ? "" : "s", name);
  }
  std::vector<Device> devices;
  devices.reserve(static_cast<std::size_t>(count));
  for (std::int64_t d = 0; d < count; ++d) {
    Device one = device;
    one.name = fmt::format("{}:{}", device.name, d);
    one.product = device.name;
    one.cores = {static_cast<int>(d)};
    one.node = static_cast<int>(d / in_node);
    devices.push_back(std::move(one));
  }
  return Cluster(std::move(devices), std::nullopt, wired ? std::optional(wiring) : std::nullopt);
}

Blueprint Blueprint::joined_by(const Blueprint& network) const {
  if (!network.networked) {
    throw usage_error("{} describes no network that could join {}", network.name, name);
  }
  Blueprint joined = *this;
  joined.name = name + "+" + network.name;
  joined.networked = true;
  joined.wired = true;
  joined.wiring.network = network.wiring.network;
  joined.wiring.network_ports = network.wiring.network_ports;
  return joined;
}

Blueprint parse_blueprint(std::string_view text, std::string name) {
  const toml::table root = parse_toml(text, "the cluster " + name);
  for (const auto& [key, node] : root) {
    constexpr std::array<std::string_view, 7> known{"summary", "device", "port", "mesh", "bus", "network", "collectives"};
    if (std::find(known.begin(), known.end(), key.str()) == known.end()) {
      throw usage_error("the cluster {} has '{}', but takes summary, [device], [port], [mesh], [bus], [network] and [collectives]",
                        name, key.str());
    }
  }
  Blueprint blueprint;
  blueprint.name = name;
  blueprint.summary = root["summary"].value_or(std::string());
  require_plain(blueprint.summary, "the summary of the cluster " + name);
  if (root.contains("device")) {
    blueprint.device = read_device(root, name, blueprint.in_node);
    blueprint.memory_known = root["device"]["memory"].is_value();
  }
  Section port(root, name, "port");
  blueprint.wiring.port = read_link(port, name);
  blueprint.wiring.mesh = read_mesh(root, name, blueprint.in_node);
  Section bus(root, name, "bus");
  blueprint.wiring.bus = bus.get("bandwidth", 0.0, parse_bandwidth);
  Section network(root, name, "network");
  blueprint.wiring.network = read_link(network, name);
  blueprint.wiring.network_ports = static_cast<int>(network.get("ports", std::int64_t{1}, count_of));
  Section collectives(root, name, "collectives");
  blueprint.wiring.algorithm = collectives.get("algorithm", Algorithm::hierarchical,
                                               [](const std::string& word, const std::string&) { return algorithm_by_name(word); });
  blueprint.wiring.start = collectives.get("start", Nanoseconds(0), parse_time);
  blueprint.wiring.own_pass = collectives.get(
      "own_pass", 0.0, [](const std::string& word, const std::string& what) { return parse_number(word, what, 0, 10); });
  const auto bytes_of = [](const std::string& word, const std::string& what) {
    return static_cast<double>(parse_bytes(word, what).count);
  };
  blueprint.wiring.half_message = collectives.get("half_message", 0.0, bytes_of);
  blueprint.wiring.switch_sums = collectives.get("switch_sums", 0.0, parse_bandwidth);
  blueprint.wiring.switch_from = collectives.get("switch_from", std::int64_t{2}, count_of);
  const auto share_or_none = [](const std::string& word, const std::string& what) { return parse_number(word, what, 0, 1); };
  blueprint.wiring.quick_start = collectives.get("quick_start", Nanoseconds(0), parse_time);
  blueprint.wiring.quick_until = collectives.get("quick_until", 0.0, bytes_of);
  blueprint.wiring.quick_latency = collectives.get("quick_latency", Nanoseconds(0), parse_time);
  blueprint.wiring.quick_share = collectives.get("quick_share", 0.0, share_or_none);
  blueprint.wiring.tree_level = collectives.get("tree_level", Nanoseconds(0), parse_time);
  blueprint.wiring.tree_member = collectives.get("tree_member", Nanoseconds(0), parse_time);
  blueprint.wiring.tree_share = collectives.get("tree_share", 0.0, share_or_none);
  for (const Section* section : {&port, &bus, &network, &collectives}) {
    section->done();
  }
  blueprint.networked = network.given();
  blueprint.wired = network.given() || port.given() || bus.given();
  if (blueprint.in_node == 0 && !blueprint.networked) {
    throw usage_error("the cluster {} has neither a [device] nor a [network]", name);
  }
  return blueprint;
}

Blueprint read(const std::filesystem::path& file) {
  return parse_blueprint(read_file(file, "the cluster " + file.string(), most_toml), file.stem().string());
}

const std::vector<Blueprint>& catalogue() {
  static const std::vector<Blueprint> list = [] {
    std::vector<Blueprint> all;
    for (const auto& [name, text] : catalogue_texts()) {
      all.push_back(parse_blueprint(text, std::string(name)));
    }
    return all;
  }();
  return list;
}

Blueprint blueprint_by_name(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, '+');
  Blueprint blueprint = find(parts[0], false);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    blueprint = blueprint.joined_by(find(parts[i], true));
  }
  return blueprint;
}

}  // namespace baton::cluster

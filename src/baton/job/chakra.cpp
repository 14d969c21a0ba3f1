#include "baton/job/chakra.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/base/error.h"

namespace baton::job {
namespace {

using plan::Task;

/// A message in the wire format of protocol buffers, as it is written field by field.
class Message {
 public:
  void number(std::uint32_t field, std::uint64_t value) {
    varint(std::uint64_t{field} << 3);
    varint(value);
  }
  void bytes(std::uint32_t field, const std::string& value) {
    varint((std::uint64_t{field} << 3) | 2);
    varint(value.size());
    bytes_ += value;
  }
  void numbers(std::uint32_t field, const std::vector<std::uint64_t>& values) {  // packed
    if (!values.empty()) {
      Message list;
      for (const std::uint64_t value : values) {
        list.varint(value);
      }
      bytes(field, list.bytes_);
    }
  }
  /// The message after its length.
  void delimited(const Message& message) {
    varint(message.bytes_.size());
    bytes_ += message.bytes_;
  }
  const std::string& text() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    }
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// Numbers of the fields of et_def.proto.
enum class NodeType : std::uint8_t { compute = 4, send = 5, receive = 6, collective = 7 };
namespace attribute {
constexpr std::uint32_t int32 = 7, int64 = 9, uint64 = 13, boolean = 27, text = 29;
}

void add_number(Message& node, const std::string& name, std::uint32_t kind, std::uint64_t value) {
  Message one;
  one.bytes(1, name);
  one.number(kind, value);
  node.bytes(10, one.text());
}

void add_text(Message& node, const std::string& name, const std::string& value) {
  Message one;
  one.bytes(1, name);
  one.bytes(attribute::text, value);
  node.bytes(10, one.text());
}

/// CollectiveCommType.
std::uint64_t collective_type(plan::Move kind) {
  switch (kind) {
    case plan::Move::reduce:
      return 1;
    case plan::Move::all_gather:
      return 2;
    case plan::Move::broadcast:
      return 5;
    case plan::Move::reduce_scatter:
      return 7;
    case plan::Move::all_reduce:
      return 0;
    case plan::Move::copy:
      break;
  }
  check(false, "a copy is not a collective");
  return 0;
}

/// Writes the files of all devices of one plan.
class Writer {
 public:
  Writer(const plan::Plan& plan, const std::function<Nanoseconds(TaskId task)>& duration) : plan_(plan), duration_(duration) {
    std::vector<std::uint64_t> next(plan.devices().size(), 0);
    for (const Task& task : plan.tasks()) {
      number_.push_back(next[task.device.index()]++);
    }
  }

  Chakra write() {
    std::vector<Message> files(plan_.devices().size());
    Message metadata;
    metadata.bytes(1, "0.0.4");
    for (Message& file : files) {
      file.delimited(metadata);
    }
    for (std::size_t t = 0; t < plan_.tasks().size(); ++t) {
      files[plan_.tasks()[t].device.index()].delimited(node(TaskId(t)));
    }
    for (const Message& file : files) {
      chakra_.devices.push_back(file.text());
    }
    return std::move(chakra_);
  }

 private:
  Message node(TaskId id) {
    const Task& task = plan_[id];
    Message node;
    node.number(1, number_[id.index()]);
    node.bytes(2, name_of(task));
    const auto* transfer = std::get_if<plan::Transfer>(&task.action);
    const auto* collective = std::get_if<plan::Collective>(&task.action);
    const NodeType type = collective != nullptr                        ? NodeType::collective
                          : transfer == nullptr                        ? NodeType::compute
                          : transfer->end == plan::Transfer::End::send ? NodeType::send
                                                                       : NodeType::receive;
    node.number(3, static_cast<std::uint64_t>(type));
    node.numbers(5, dependencies(id));
    if (type == NodeType::compute && duration_) {
      node.number(7, static_cast<std::uint64_t>(std::max<std::int64_t>(1, (duration_(id).count + 500) / 1000)));
    }
    add_number(node, "is_cpu_op", attribute::boolean, 0);
    if (collective != nullptr) {
      add_number(node, "comm_type", attribute::int64, collective_type(collective->kind));
      add_number(node, "comm_size", attribute::int64, payload_of(task));
      add_text(node, "pg_name", group_of(collective->meeting));
    } else if (transfer != nullptr) {
      const bool sends = type == NodeType::send;
      add_number(node, "comm_src", attribute::int32, sends ? task.device.index() : transfer->peer.index());
      add_number(node, "comm_dst", attribute::int32, sends ? transfer->peer.index() : task.device.index());
      add_number(node, "comm_size", attribute::int64, payload_of(task));
      add_number(node, "comm_tag", attribute::int32, transfer->meeting.index());
    } else {
      const plan::TaskWork work = plan::work(plan_, id);
      add_number(node, "num_ops", attribute::int64, static_cast<std::uint64_t>(work.flops.count));
      add_number(node, "tensor_size", attribute::uint64, static_cast<std::uint64_t>((work.read + work.written).count));
    }
    return node;
  }

  std::vector<std::uint64_t> dependencies(TaskId id) const {
    std::vector<std::uint64_t> list;
    if (const TaskId before = plan_.before(id); before.valid()) {
      list.push_back(number_[before.index()]);
    }
    for (const TaskId after : plan_[id].after) {
      list.push_back(number_[after.index()]);
    }
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
  }

  std::uint64_t payload_of(const Task& task) const {
    return static_cast<std::uint64_t>(plan::bytes_of(plan_, plan::payload(task)).count);
  }

  static std::string name_of(const Task& task) {
    std::string name(plan::verb(task));
    name += fmt::format("/{}", plan::to_text(task.labels.phase));
    name += task.labels.block < 0 ? "" : fmt::format("/block {}", task.labels.block);
    return name + (task.labels.micro_batch < 0 ? "" : fmt::format("/micro-batch {}", task.labels.micro_batch));
  }

  /// The name of the devices that meet, the same for all meetings of the same devices.
  std::string group_of(MeetingId meeting) {
    std::vector<std::pair<std::uint32_t, std::size_t>> members;  // by rank
    for (const TaskId member : plan_.members(meeting)) {
      members.emplace_back(plan::rank_of(plan_[member]), plan_[member].device.index());
    }
    std::sort(members.begin(), members.end());
    std::vector<std::size_t> devices;
    for (const auto& [rank, device] : members) {
      devices.push_back(device);
    }
    const auto [found, added] = names_.try_emplace(devices, fmt::format("{}", names_.size() + 1));
    if (added) {
      chakra_.groups[found->second] = devices;
    }
    return found->second;
  }

  const plan::Plan& plan_;
  const std::function<Nanoseconds(TaskId task)>& duration_;
  std::vector<std::uint64_t> number_;  // by task, among those of its device
  std::map<std::vector<std::size_t>, std::string> names_;
  Chakra chakra_;
};

}  // namespace

Chakra to_chakra(const plan::Plan& plan, const std::function<Nanoseconds(TaskId task)>& duration) {
  return Writer(plan, duration).write();
}

}  // namespace baton::job

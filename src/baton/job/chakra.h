#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "baton/base/ids.h"
#include "baton/base/units.h"
#include "baton/plan/plan.h"

namespace baton::job {

/// A plan as Chakra execution traces (MLCommons), which network simulators such as ASTRA-sim read: one file per device, each
/// message after its length as a varint, first GlobalMetadata and then a Node per task.
///   Compute, Update, Delay, Load, Take   COMP_NODE with num_ops and tensor_size (bytes read and written)
///   Transfer                             COMM_SEND_NODE and COMM_RECV_NODE with comm_src, comm_dst, comm_size, comm_tag
///   Collective                           COMM_COLL_NODE with comm_type, comm_size and pg_name
/// A node depends on the task before it in its lane and on those of other lanes that it waits for.
struct Chakra {
  std::vector<std::string> devices;                        // the bytes of each device's file
  std::map<std::string, std::vector<std::size_t>> groups;  // by pg_name: the devices of its collectives, in order of rank
};

/// `duration` gives the time of a task that computes; without one its nodes last 0 µs and simulators take num_ops and tensor_size.
Chakra to_chakra(const plan::Plan& plan, const std::function<Nanoseconds(TaskId task)>& duration = {});

}  // namespace baton::job

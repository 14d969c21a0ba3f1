#pragma once

#include <string>
#include <vector>

#include "baton/base/preparation.h"
#include "baton/base/units.h"
#include "baton/cluster/cluster.h"
#include "baton/job/loss_scaling.h"
#include "baton/job/what_if.h"
#include "baton/model/model_name.h"
#include "baton/op/rate.h"
#include "baton/strategy/delays.h"

/// Values of a job as the command line takes them. Parsing the text gives the value again, to the bit.
namespace baton::job {

std::string flag_text(const model::ModelName& model);                      // mlp:dim=1024,depth=2
std::string flag_text(Bytes size);                                         // 512M
std::string flag_text(Nanoseconds time);                                   // 1500ms
std::string flag_text(const cluster::Link& link);                          // bandwidth=1GB/s,latency=50us
std::string flag_text(const strategy::DelayRequest& delay);                // before=backward,device=all,ms=10
std::string flag_text(const std::vector<strategy::DelayRequest>& delays);  // separated by semicolons
std::string flag_text(const op::RateSchedule& schedule);                   // cosine:until=1000,warmup=100; empty if the rate stays
std::string flag_text(const WhatIf& what_if);                              // compute=2x,latency=+10us; empty if nothing changes
std::string flag_text(const PixelScale& scale);                            // mnist, 0.5/0.25
std::string flag_text(const Augmentation& augmentation);                   // none, crop=4,flip
std::string flag_text(const LossScaling& scaling);                         // none, dynamic, 1024; empty: by precision

}  // namespace baton::job

#pragma once

#include "baton/exec/backend/reference/loops.h"
#include "baton/op/dropout.h"

namespace baton::exec::reference {

template <typename Real>
void Loops<Real>::operator()(const op::Relu&) const {
  for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
    out(0)[i] = value(0, i) < 0 ? Real(0) : in(0)[i];
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::ReluBackward&) const {
  for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
    out(0)[i] = value(1, i) > 0 ? in(0)[i] : Real(0);
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::Gelu& gelu) const {
  for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
    out(0)[i] = rounded(value(0, i) * normal_share(value(0, i), gelu.tanh).share);
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::GeluBackward& gelu) const {
  for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
    out(0)[i] = rounded(value(0, i) * gelu_slope(value(1, i), gelu.tanh));
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::Add&) const {
  for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
    out(0)[i] = rounded(value(0, i) + value(1, i));
  }
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

template <typename Real>
void Loops<Real>::operator()(const op::SiluGate&) const {
  for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
    out(0)[i] = rounded(value(0, i) * sigmoid(value(0, i)) * value(1, i));
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::SiluGateBackward&) const {
  for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
    const double dy = value(0, i);
    const double a = value(1, i);
    const double share = sigmoid(a);
    out(0)[i] = rounded(dy * value(2, i) * share * (1 + a * (1 - share)));
    out(1)[i] = rounded(dy * a * share);
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::Cast&) const {
  for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
    out(0)[i] = rounded(any_value(0, i));
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::Dropout& dropout) const {
  const op::DropoutMask mask(dropout.rate, dropout.layer, dropout.seed, step);
  const op::ElementPlaces places = plan::places_of(plan, task.writes[0]);
  for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
    const std::int64_t place = places.of(i);
    out(0)[i] = rounded(mask.drops(mask.words(place), place) ? 0 : value(0, i) / (1 - dropout.rate));
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::Flatten&) const {
  std::copy_n(in(0), in_shape(0).elements(), out(0));
}

template <typename Real>
void Loops<Real>::operator()(const op::FlattenBackward&) const {
  std::copy_n(in(0), in_shape(0).elements(), out(0));
}

}  // namespace baton::exec::reference

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>

namespace baton {

/// A list of plain values whose first `Inline` lie in the object itself: short lists allocate nothing. It may grow beyond that.
template <typename T, std::size_t Inline>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  InlineVector() = default;
  InlineVector(std::initializer_list<T> values) : InlineVector(values.begin(), values.end()) {}
  template <typename Iterator>
  InlineVector(Iterator begin, Iterator end) {
    reserve(static_cast<std::size_t>(std::distance(begin, end)));
    for (; begin != end; ++begin) {
      push_back(*begin);
    }
  }
  InlineVector(const InlineVector& other) : own_(other.own_) {
    if (other.more_) {
      reserve(other.size());
      std::copy(other.begin(), other.end(), data());
    }
    size_ = other.size_;
  }
  InlineVector(InlineVector&& other) noexcept
      : size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, static_cast<std::uint32_t>(Inline))),
        own_(other.own_),
        more_(std::move(other.more_)) {}
  InlineVector& operator=(const InlineVector& other) {
    if (this != &other) {
      clear();
      reserve(other.size());
      std::copy(other.begin(), other.end(), data());
      size_ = other.size_;
    }
    return *this;
  }
  InlineVector& operator=(InlineVector&& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, static_cast<std::uint32_t>(Inline));
    own_ = other.own_;
    more_ = std::move(other.more_);
    return *this;
  }
  ~InlineVector() = default;

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return more_ ? more_.get() : own_.data(); }
  const T* data() const { return more_ ? more_.get() : own_.data(); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  T& front() { return data()[0]; }
  const T& front() const { return data()[0]; }
  T& back() { return data()[size_ - 1]; }
  const T& back() const { return data()[size_ - 1]; }

  void push_back(const T& value) {
    const T copy = value;  // it may lie in this list
    if (size_ == capacity_) {
      reserve(2 * std::size_t{capacity_});
    }
    data()[size_++] = copy;
  }
  void pop_back() { --size_; }
  void clear() { size_ = 0; }
  void reserve(std::size_t count) {
    if (count <= capacity_) {
      return;
    }
    auto larger = std::make_unique<T[]>(count);
    std::copy(begin(), end(), larger.get());
    more_ = std::move(larger);
    capacity_ = static_cast<std::uint32_t>(count);
  }

  bool operator==(const InlineVector& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = Inline;
  std::array<T, Inline> own_{};
  std::unique_ptr<T[]> more_;  // in place of `own_`
};

}  // namespace baton

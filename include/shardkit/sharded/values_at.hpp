// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/core/element.hpp>
#include <shardkit/param/tensor_part.hpp>

namespace shardkit::detail {

/// The values of a whole tensor, some at a time: a function of the index or an array, without its type, so that what
/// writes them is compiled once for all.
class ValuesAt {
  public:
    /// @pre `value_at`, index in the whole tensor -> double, outlives it
    template <class F>
    static ValuesAt of(const F& value_at) noexcept {
        return {&value_at, nullptr, [](const void* function, std::size_t whole, std::span<double> to) {
                    for (double& value : to) { value = (*static_cast<const F*>(function))(whole++); }
                }};
    }
    /// @pre `values`, of the whole tensor in row-major order, outlive it
    template <FloatingElement T>
    static ValuesAt of(std::span<const T> values) noexcept {
        return {values.data(), &type<T>, [](const void* array, std::size_t whole, std::span<double> to) {
                    const T* from = static_cast<const T*>(array) + whole;
                    for (double& value : to) { value = static_cast<double>(static_cast<Arithmetic<T>>(*from++)); }
                }};
    }
    /// Elements of `part` from number `first` on, as many as `to` has.
    void read(const TensorPart& part, std::size_t first, std::span<double> to) const {
        part.for_each_run(first, first + to.size(), [&](std::size_t i, std::size_t whole, std::size_t run) {
            read_(values_, whole, to.subspan(i - first, run));
        });
    }
    /// The array, where it is one of T; null otherwise.
    template <class T>
    const T* array() const noexcept {
        return type_ == &type<T> ? static_cast<const T*>(values_) : nullptr;
    }

  private:
    using Read = void (*)(const void* values, std::size_t whole, std::span<double> to);
    template <class T>
    static constexpr char type = 0;  // its address tells the types apart

    ValuesAt(const void* values, const char* of_type, Read reads) noexcept
        : values_(values), type_(of_type), read_(reads) {}

    const void* values_;
    const char* type_;
    Read read_;
};

}  // namespace shardkit::detail

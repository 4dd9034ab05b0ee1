// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <span>

#include <shardkit/core/element.hpp>
#include <shardkit/core/split_float.hpp>
#include <shardkit/param/tensor_part.hpp>

namespace shardkit::detail {

/// The values of a whole tensor, read in pieces from a function of the index or from an array. The type is erased, so
/// that the code that writes them is compiled once.
class TensorValueSource {
  public:
    /// Refers to a function from the index in the whole tensor to a double. @pre `value_at` outlives this object
    template <class F>
    static TensorValueSource of(const F& value_at) noexcept {
        return {&value_at, nullptr, [](const void* function, std::size_t whole, std::span<double> to) {
                    for (double& value : to) { value = (*static_cast<const F*>(function))(whole++); }
                }};
    }
    /// Refers to an array of the whole tensor, in row-major order. @pre `values` outlive this object
    template <FloatingElement T>
    static TensorValueSource of(std::span<const T> values) noexcept {
        return {values.data(), &type<T>, [](const void* array, std::size_t whole, std::span<double> to) {
                    const T* from = static_cast<const T*>(array) + whole;
                    for (double& value : to) { value = static_cast<double>(static_cast<Arithmetic<T>>(*from++)); }
                }};
    }
    /// Reads to.size() elements of `part`, from index `first` on.
    void read(const TensorPart& part, std::size_t first, std::span<double> to) const {
        part.for_each_run(first, first + to.size(), [&](std::size_t i, std::size_t whole, std::size_t run) {
            read_(values_, whole, to.subspan(i - first, run));
        });
    }
    /// Returns the array if it is one of T, else null.
    template <class T>
    const T* array() const noexcept {
        return type_ == &type<T> ? static_cast<const T*>(values_) : nullptr;
    }

  private:
    using Read = void (*)(const void* values, std::size_t whole, std::span<double> to);
    template <class T>
    static constexpr char type = 0;  // its address identifies the type

    TensorValueSource(const void* values, const char* of_type, Read reads) noexcept
        : values_(values), type_(of_type), read_(reads) {}

    const void* values_;
    const char* type_;
    Read read_;
};

/// The user's memory for the values of a whole tensor, in row-major order. The type of its elements is a value.
class TensorValueTarget {
  public:
    template <FloatingElement T>
    static TensorValueTarget of(std::span<T> values) noexcept {
        return {std::as_writable_bytes(values), values.size(), element_type_of<T>,
                [](void* array, std::size_t first, std::span<const double> numbers) {
                    T* to = static_cast<T*>(array) + first;
                    for (const double number : numbers) { *to++ = to_element<T>(number); }
                }};
    }
    std::size_t size() const noexcept { return size_; }
    ElementType type() const noexcept { return type_; }
    std::span<std::byte> bytes() const noexcept { return bytes_; }
    /// Sets neighbouring elements, from `first` on, to the nearest ones.
    void set(std::size_t first, std::span<const double> numbers) const { set_(bytes_.data(), first, numbers); }

  private:
    using Set = void (*)(void* array, std::size_t first, std::span<const double> numbers);
    TensorValueTarget(std::span<std::byte> bytes, std::size_t size, ElementType type, Set sets) noexcept
        : bytes_(bytes), size_(size), type_(type), set_(sets) {}

    std::span<std::byte> bytes_;
    std::size_t size_;
    ElementType type_;
    Set set_;
};

/// Rounds a value to the nearest T, by way of a master's type: of the master itself, that is T.
template <class By>
struct RoundToNearest {
    /// Whether an array of T already has such values.
    template <class T>
    static constexpr bool keeps = holds_exactly<By, T>;

    template <class T>
    static constexpr T of(double value) noexcept {
        return to_element_by<T, By>(value);
    }
};
/// The halves of an fp32 number: see SplitFloat.
struct UpperHalf {
    template <class T>
    static constexpr bool keeps = true;

    template <class T>
    static constexpr T of(double value) noexcept {
        return std::bit_cast<T>(SplitFloat::upper(to_element<float>(value)));
    }
};
struct LowerHalf {
    template <class T>
    static constexpr bool keeps = false;

    template <class T>
    static constexpr T of(double value) noexcept {
        return SplitFloat::lower(to_element<float>(value));
    }
};

}  // namespace shardkit::detail

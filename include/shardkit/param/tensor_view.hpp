// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/param/tensor_shape.hpp>

namespace shardkit {

namespace detail {
/// Checks that a view is not used after its window or handle has ended, by a generation counter.
class GenerationCheck {
  public:
    GenerationCheck(const std::uint64_t& current, SourceLocation opened) noexcept
        : current_(&current), made_for_(current), opened_(opened) {}
    void operator()() const {
        if (*current_ != made_for_) {
            throw_usage_error(opened_, "view used after the end of its window, which was opened here");
        }
    }
    SourceLocation opened() const noexcept { return opened_; }

  private:
    const std::uint64_t* current_;
    std::uint64_t made_for_;
    SourceLocation opened_;
};
/// An empty check for the views of an unchecked build.
struct NoCheck {
    NoCheck(const std::uint64_t& /*current*/, SourceLocation /*opened*/) noexcept {}
    void operator()() const noexcept {}
    SourceLocation opened() const noexcept { return {}; }
};
/// The check that a view makes before it shows memory with a limited lifetime.
using ViewCheck = std::conditional_t<checked, GenerationCheck, NoCheck>;
}  // namespace detail

}  // namespace shardkit

namespace shardkit SHARDKIT_BUILD {

/// A view of the elements of a parameter or gradient as a row-major tensor. It refers to the memory of a window or
/// handle and must not outlive it. It converts to std::span<T> and to T*, so that functions on plain memory accept
/// it.
template <class T>
class TensorView {
  public:
    /// Makes a view. `opened` is where the user opened the window, for the message of a checked build.
    TensorView(T* data, const TensorShape& shape, const std::uint64_t& generation,
               SourceLocation opened = SourceLocation::current()) noexcept
        : data_(data), shape_(&shape), check_(generation, opened) {}

    T* data() const {
        check_();
        return data_;
    }
    std::size_t size() const noexcept { return shape_->numel(); }
    const TensorShape& shape() const noexcept { return *shape_; }
    std::size_t extent(std::size_t dimension) const noexcept { return shape_->extents[dimension]; }

    T* begin() const { return data(); }
    T* end() const { return data() + size(); }
    template <std::integral Integer>
    T& operator[](Integer i) const {
        return data()[i];
    }
    /// Returns the element at row-major indices, one for each dimension: view(i, j).
    /// @throws UsageError, in checked builds, for a wrong number of indices or an index out of range
    template <std::integral... Integer>
    requires(sizeof...(Integer) > 0) T& operator()(Integer... indices) const {
        const std::size_t at[] = {static_cast<std::size_t>(indices)...};
        if constexpr (checked) { check_indices(at); }
        std::size_t offset = 0;
        for (std::size_t d = 0; d < sizeof...(Integer); ++d) { offset = offset * shape_->extents[d] + at[d]; }
        return data()[offset];
    }
    /// Returns the pointer for C functions that take `float*` but do not write. Writing through it would change a
    /// window's memory on this rank alone.
    std::remove_const_t<T>* const_cast_data() const { return const_cast<std::remove_const_t<T>*>(data()); }
    operator T*() const { return data(); }  // NOLINT(google-explicit-constructor): plain memory is the point

  private:
    template <std::size_t N>
    void check_indices(const std::size_t (&at)[N]) const {
        bool inside = N == shape_->rank;
        for (std::size_t d = 0; d < N && inside; ++d) { inside = at[d] < shape_->extents[d]; }
        if (inside) { return; }
        std::string given;
        for (std::size_t d = 0; d < N; ++d) { given += detail::concat(d == 0 ? "" : ", ", at[d]); }
        throw_usage_error(check_.opened(), "view(", given, ") of a tensor of shape ", shape_->describe(),
                          "; its window or handle was opened here");
    }

    T* data_;
    const TensorShape* shape_;
    [[no_unique_address]] detail::ViewCheck check_;
};

}  // namespace SHARDKIT_BUILD

template <class T>
inline constexpr bool std::ranges::enable_borrowed_range<shardkit::TensorView<T>> = true;

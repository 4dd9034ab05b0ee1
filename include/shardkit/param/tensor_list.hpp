// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/param/check_tensors.hpp>
#include <shardkit/param/parameter_record.hpp>
#include <shardkit/param/params.hpp>
#include <shardkit/param/shapes.hpp>

namespace shardkit {

/// One tensor of a TensorList: {"wte", {50257, 768}}, {"ln_w", {768}, {.decay = false}}.
class NamedTensor {
  public:
    /// Takes the tensor's name, extents and attributes.
    /// @throws std::invalid_argument for more than 8 extents
    NamedTensor(std::string name, std::initializer_list<std::size_t> extents, ParameterAttributes attributes = {},
                SourceLocation where = SourceLocation::current())
        : NamedTensor(std::move(name), std::span<const std::size_t>(extents.begin(), extents.size()), attributes,
                      where) {}
    /// Takes the extents from an array or span of any integer type.
    template <detail::Contiguous Extents>
    NamedTensor(std::string name, const Extents& extents, ParameterAttributes attributes = {},
                SourceLocation where = SourceLocation::current())
        : name_(std::move(name)), attributes_(attributes) {
        const std::size_t rank = std::size(extents);
        require_argument(rank <= TensorShape::max_rank, where, "tensor '", name_, "': ", rank,
                         " extents, expected at most ", TensorShape::max_rank);
        shape_.rank = rank;
        for (std::size_t d = 0; d < rank; ++d) {
            shape_.extents[d] = static_cast<std::size_t>(std::data(extents)[d]);
        }
    }

    const std::string& name() const noexcept { return name_; }
    const TensorShape& shape() const noexcept { return shape_; }
    const ParameterAttributes& attributes() const noexcept { return attributes_; }

  private:
    std::string name_;
    TensorShape shape_;
    ParameterAttributes attributes_;
};

/// A group of parameters whose tensors are known only at run time: their names, shapes and number come from a file or
/// from arrays. It serves as the group's type, like Params, and as the argument with its shapes, like Shapes:
///     Sharded<TensorList<float>, FullShard> block{rank, "blocks.0", {{"w", {768, 768}}, {"b", {768}}}};
///     window.view("w"), window.view(0), block.load("b", values)
/// It has one element type, and the same buffers, policies, optimizers, norm and plan as a group of types with the
/// same shapes. Any list can be made: check() refuses invalid ones once the group's path is known.
template <class E>
class TensorList {
    static constexpr bool is_element = FloatingElement<E>;
    static_assert(is_element,
                  "TensorList<Element>: the element type is double, float, bf16, fp16, std::byte, or one "
                  "whose element_traits have a floating Arithmetic");

  public:
    using Element = E;
    /// No type is a parameter of the list.
    template <class P>
    static constexpr bool contains = false;
    /// Nor do types fix extents, or give further names.
    static constexpr std::span<const std::span<const std::size_t>> extents{};
    static constexpr std::span<const ParameterName> all_names{};

    TensorList(std::initializer_list<NamedTensor> tensors) : tensors_(tensors) {}
    explicit TensorList(std::vector<NamedTensor> tensors) noexcept : tensors_(std::move(tensors)) {}
    /// Makes a list of tensors with one dimension, from the names and element counts of a packed allocation.
    /// @throws std::invalid_argument when the numbers of names and of sizes differ
    template <detail::ForwardRange Names, detail::ForwardRange Sizes>
    requires std::convertible_to<std::iter_reference_t<detail::RangeIterator<const Names>>, std::string_view> &&
        std::convertible_to<std::iter_reference_t<detail::RangeIterator<const Sizes>>, std::size_t>
        TensorList(const Names& names, const Sizes& sizes, ParameterAttributes attributes = {},
                   SourceLocation where = SourceLocation::current()) {
        const auto given = std::ranges::distance(std::ranges::begin(names), std::ranges::end(names));
        const auto counted = std::ranges::distance(std::ranges::begin(sizes), std::ranges::end(sizes));
        require_argument(given == counted, where, "TensorList: ", given, " names and ", counted,
                         " sizes, expected one size for each name");
        auto size = std::ranges::begin(sizes);
        for (const std::string_view name : names) {
            add({std::string(name), {static_cast<std::size_t>(*size)}, attributes, where});
            ++size;
        }
    }

    /// Appends a tensor.
    TensorList& add(NamedTensor tensor) {
        tensors_.push_back(std::move(tensor));
        return *this;
    }

    std::size_t size() const noexcept { return tensors_.size(); }
    const NamedTensor& operator[](std::size_t i) const noexcept { return tensors_[i]; }

    /// Returns tensor i as a parameter. It refers to the name in this list.
    ParameterRecord record(std::size_t i) const noexcept {
        return {tensors_[i].attributes(), tensors_[i].name(), tensors_[i].shape()};
    }
    /// Checks that the tensors can be the parameters of the group at `path`: what Params and Shapes check, in part at
    /// compile time.
    /// @throws std::invalid_argument that names path and tensor, what was given and what was expected
    void check(std::string_view path, SourceLocation where = SourceLocation::current()) const {
        std::vector<ParameterRecord> records;
        for (std::size_t i = 0; i < size(); ++i) { records.push_back(record(i)); }
        detail::check_tensors(path, records, where);
    }

  private:
    std::vector<NamedTensor> tensors_;
};

namespace detail {
template <class E>
struct AsGroup<TensorList<E>> {
    using type = TensorList<E>;
};
template <class E>
struct GroupTensors<TensorList<E>> {
    using type = TensorList<E>;
};
}  // namespace detail

}  // namespace shardkit

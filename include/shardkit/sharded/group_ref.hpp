// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/elements.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/param/initial_values.hpp>
#include <shardkit/param/tensor_shape.hpp>
#include <shardkit/param/tensor_view.hpp>
#include <shardkit/sharded/tensor_value_source.hpp>

// A group without its types, in both forms. sharded/group_functions.hpp defines what is declared here.

namespace shardkit {
struct ShardInfo;

/// Whether a window may communicate.
enum class Gathers : std::uint8_t {
    when_stale,  ///< the window gathers where the full copy is stale
    never        ///< a window that would have to gather is refused
};
}  // namespace shardkit

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

class Group;

const std::string& path_of(const Group& group) noexcept;
std::span<const PlacedParameter> parameters_of(const Group& group) noexcept;
bool trains(const Group& group) noexcept;
const layout::FlatLayout& layout_of(const Group& group) noexcept;
void list_shards(Group& group, std::vector<ShardInfo>& into);
std::size_t number_of(const Group& group, std::string_view name, SourceLocation where);
std::size_t number_of(const Group& group, std::ptrdiff_t number, SourceLocation where);
/// Prepares that all parameters are written, which are torn until then.
void begin_initialize(Group& group, SourceLocation where);
/// Sets one parameter from its full values in every buffer of this rank.
void write_values(Group& group, std::size_t parameter, const TensorValueSource& values, SourceLocation where);
/// The same of `count` values at `memory`, which must be the parameter's.
void load_values(Group& group, std::size_t parameter, const TensorValueSource& values, std::size_t count,
                 std::span<const std::byte> memory, SourceLocation where);

/// Copies one whole tensor on the ranks with `wanted`. Collective as unshard, and over tp where it is split over it.
/// @throws std::invalid_argument when the number of values is not the tensor's
void read_full(Group& group, std::size_t parameter, bool wanted, const TensorValueTarget& values,
               SourceLocation where);
/// Copies one whole reduced gradient, times `scale`. Collective over the shard group, and over tp likewise.
/// @throws std::invalid_argument likewise; UsageError without a gradient
void read_full_gradient(Group& group, std::size_t parameter, double scale, const TensorValueTarget& values,
                        SourceLocation where);

/// Ends a group that make_group has made.
void end_group(Group& group) noexcept;

/// Throw a UsageError; `refuse_group` puts the group's path before `text`.
[[noreturn]] void refuse_use(SourceLocation where, const char* text);
[[noreturn]] void refuse_group(const Group& group, SourceLocation where, const char* text);

/// Takes elements of a group, whose type is a value.
using ShownTo = void (*)(void* to, ElementType type, void* values);

// Windows.
void open_window(Group& group, Gathers gathers, SourceLocation where);
void use_window(Group& group, SourceLocation opened);
void close_window(Group& group) noexcept;
/// Closes a window that was never used; its gather may still run.
void drop_window(Group& group) noexcept;
/// Elements of a whole tensor in the engine's memory.
struct WholeElements {
    void* at;
    const TensorShape* shape;
    const std::uint64_t* generation;  ///< which views compare in a checked build
    const float* scales;              ///< of codes, else null

    template <class T>
    TensorView<T> view(SourceLocation opened) const {
        return {static_cast<T*>(at), *shape, *generation, opened};
    }
};
WholeElements shown_parameter(Group& group, std::size_t parameter);

// Gradients.
void drop_gradients(Group& group) noexcept;
WholeElements gradient_of(Group& group, std::size_t parameter, std::size_t source) noexcept;
/// Whether the backward pass must overwrite a parameter's gradient.
bool overwrites(Group& group, std::size_t parameter) noexcept;
/// How many gradients of each parameter a handle has.
std::size_t sources_of(const Group& group) noexcept;

/// Returns the number of a parameter of a group with these Params, given by its type, name or number.
/// @throws std::invalid_argument when the group has none of that name or number
template <class Params, class P>
std::size_t number_in(const Group& group, const P& parameter, SourceLocation where) {
    if constexpr (std::integral<P>) {
        return number_of(group, static_cast<std::ptrdiff_t>(parameter), where);
    } else if constexpr (std::convertible_to<const P&, std::string_view>) {
        return number_of(group, std::string_view(parameter), where);
    } else {
        constexpr bool in_group = Params::template contains<P>;
        static_assert(in_group, "this parameter is not in the group");
        if constexpr (in_group) { return Params::template index<P>; }
    }
}

/// Sets every element from value(path, parameter name, index in the whole tensor), or value(path, name)(index).
template <class F>
void initialize_values(Group& group, F& value, SourceLocation where) {
    begin_initialize(group, where);
    const std::string_view path = path_of(group);
    std::size_t number = 0;
    for (const PlacedParameter& each : parameters_of(group)) {
        const auto write = [&](const auto& value_at) {
            write_values(group, number++, TensorValueSource::of(value_at), where);
        };
        if constexpr (GivesFunctions<F>) {
            const auto its = function_of(value, path, each.name);
            write([&](std::size_t i) { return static_cast<double>(its(std::uint64_t{i})); });
        } else {
            write([&](std::size_t i) { return static_cast<double>(value(path, each.name, std::uint64_t{i})); });
        }
    }
}

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit SHARDKIT_CHECKED_BUILD {
class GroupRef;
}
namespace shardkit::spi SHARDKIT_CHECKED_BUILD {
/// All that the library has of a group; see sharded/group.hpp.
detail::Group& group(const GroupRef& ref, SourceLocation where = SourceLocation::current()) noexcept;
}  // namespace shardkit::spi SHARDKIT_CHECKED_BUILD

namespace shardkit SHARDKIT_CHECKED_BUILD {

/// One group of a model without its types, as model.for_each passes it on. An accumulation's add_zero, skip and
/// set_microbatches and an optimizer's steps accept it like a Sharded. It refers to the group, which must outlive it.
class GroupRef {
  public:
    explicit GroupRef(detail::Group& group) noexcept : group_(&group) {}

    const std::string& path() const noexcept { return detail::path_of(*group_); }
    bool trainable() const noexcept { return detail::trains(*group_); }
    /// Returns the sizes of the flat buffer and of its shards.
    const layout::FlatLayout& layout() const noexcept { return detail::layout_of(*group_); }
    /// Returns the name, shape, attributes and place of each parameter, in order.
    std::span<const PlacedParameter> parameters() const noexcept { return detail::parameters_of(*group_); }
    /// Returns the elements that this rank holds of each parameter and of its master weights. Who asks for them
    /// includes sharded/list_shards.hpp.
    template <class Info = ShardInfo>
    std::vector<Info> shards() const {
        std::vector<Info> list;
        detail::list_shards(*group_, list);
        return list;
    }

    /// Sets every element, as Sharded::initialize; the host calls `value`.
    template <class F>
    void initialize(F value, SourceLocation where = SourceLocation::current()) const {
        detail::initialize_values(*group_, value, where);
    }
    /// Sets one parameter, by its name or its number, from its full values, as Sharded::load.
    template <class NameOrNumber, class Values>
    void load(const NameOrNumber& parameter, const Values& values,
              SourceLocation where = SourceLocation::current()) const {
        if constexpr (detail::ValuesRules<const Values>::are_read) {
            using Value = detail::ElementIn<const Values>;
            const std::span<const Value> read = detail::elements_of(values);
            detail::load_values(*group_, detail::number_in<void>(*group_, parameter, where),
                                detail::TensorValueSource::of(read), read.size(), std::as_bytes(read), where);
        }
    }

  private:
    friend detail::Group& spi::group(const GroupRef& ref, SourceLocation where) noexcept;

    detail::Group* group_;
};

}  // namespace shardkit SHARDKIT_CHECKED_BUILD

namespace shardkit::spi SHARDKIT_CHECKED_BUILD {
inline detail::Group& group(const GroupRef& ref, SourceLocation /*where*/) noexcept { return *ref.group_; }
}  // namespace shardkit::spi SHARDKIT_CHECKED_BUILD

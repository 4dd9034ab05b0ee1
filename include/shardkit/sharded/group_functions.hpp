// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/sharded/group_ref.hpp>
#include <shardkit/sharded/group_values.hpp>
#include <shardkit/sharded/place_group.hpp>

// Defines the functions of group_ref.hpp.

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

SHARDKIT_CORE_INLINE const std::string& path_of(const Group& group) noexcept { return group.path(); }
SHARDKIT_CORE_INLINE std::span<const PlacedParameter> parameters_of(const Group& group) noexcept {
    return group.geometry().parameters;
}
SHARDKIT_CORE_INLINE bool trains(const Group& group) noexcept { return group.trainable(); }
SHARDKIT_CORE_INLINE const layout::FlatLayout& layout_of(const Group& group) noexcept { return group.layout(); }
SHARDKIT_CORE_INLINE void list_shards(Group& group, std::vector<ShardInfo>& into) { into = group.shards(); }
SHARDKIT_CORE_INLINE std::size_t number_of(const Group& group, std::string_view name, SourceLocation where) {
    return group.geometry().number_of(name, where);
}
SHARDKIT_CORE_INLINE std::size_t number_of(const Group& group, std::ptrdiff_t number, SourceLocation where) {
    return group.geometry().number_of(number, where);
}
SHARDKIT_CORE_INLINE void begin_initialize(Group& group, SourceLocation where) { group.begin_initialize(where); }
SHARDKIT_CORE_INLINE void write_values(Group& group, std::size_t parameter, const TensorValueSource& values,
                                       SourceLocation where) {
    group.write(parameter, values, where);
}
SHARDKIT_CORE_INLINE void load_values(Group& group, std::size_t parameter, const TensorValueSource& values,
                                      std::size_t count, std::span<const std::byte> memory, SourceLocation where) {
    group.check_whole("load", parameter, count, memory, where);
    group.write(parameter, values, where);
}

SHARDKIT_CORE_INLINE void read_full(Group& group, std::size_t parameter, bool wanted, const TensorValueTarget& values,
                                    SourceLocation where) {
    group.read_full(parameter, wanted, values, where);
}
SHARDKIT_CORE_INLINE void read_full_gradient(Group& group, std::size_t parameter, double scale,
                                             const TensorValueTarget& values, SourceLocation where) {
    group.read_full_gradient(parameter, scale, values, where);
}
SHARDKIT_CORE_INLINE void end_group(Group& group) noexcept { delete &group; }
SHARDKIT_CORE_INLINE void refuse_use(SourceLocation where, const char* text) { throw_usage_error(where, text); }
SHARDKIT_CORE_INLINE void refuse_group(const Group& group, SourceLocation where, const char* text) {
    throw_usage_error(where, "'", group.path(), "': ", text);
}
SHARDKIT_CORE_INLINE void open_window(Group& group, Gathers gathers, SourceLocation where) {
    group.open_window(gathers, where);
}
SHARDKIT_CORE_INLINE void use_window(Group& group, SourceLocation opened) { group.use_window(opened); }
SHARDKIT_CORE_INLINE void close_window(Group& group) noexcept { group.close_window(); }
SHARDKIT_CORE_INLINE void drop_window(Group& group) noexcept { group.drop_window(); }
SHARDKIT_CORE_INLINE WholeElements shown_parameter(Group& group, std::size_t parameter) {
    ParameterStore& store = group.parameters();
    const PlacedParameter& its = group.geometry().parameters[parameter];
    return {store.full().subspan(its.range.begin, 0).data(), &its.part.shape(), &store.generation(),
            group.geometry().sizes.codes.gathered ? store.scales(parameter) : nullptr};
}
SHARDKIT_CORE_INLINE void drop_gradients(Group& group) noexcept { group.drop_gradients(); }
SHARDKIT_CORE_INLINE WholeElements gradient_of(Group& group, std::size_t parameter, std::size_t source) noexcept {
    const PlacedParameter& its = group.geometry().parameters[parameter];
    return {group.gradients().of_source(source).subspan(its.range.begin, 0).data(), &its.part.shape(),
            &group.gradient_generation(), nullptr};
}
SHARDKIT_CORE_INLINE bool overwrites(Group& group, std::size_t parameter) noexcept {
    return group.gradients().overwrites(parameter);
}
SHARDKIT_CORE_INLINE std::size_t sources_of(const Group& group) noexcept { return group.geometry().sources(); }

/// Makes a group. `parameters`, `gradients`: the user's own memory, or empty. Collective over the mesh.
/// @throws as place_group; MemoryError; std::invalid_argument when another group has adopted some of this memory
inline Group* make_group(Rank& rank, const ElementTable& elements, const GroupValues& values,
                         std::span<std::byte> parameters, std::span<std::byte> gradients, SourceLocation where) {
    return new Group(rank, place_group(rank, elements, values, where), elements,
                     {{parameters, elements.gather}, {gradients, elements.gradient}}, where);
}

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/sharded/group_ref.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/argument_types.hpp>

// A model, in both forms. step/group_list.hpp defines what is declared here.

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// The groups of a model and of its copies.
struct GroupList;

GroupList* new_list();
/// Adds a group; null: one that had been moved from, which is refused where the model is used.
void add_group(GroupList& list, Group* group);
/// Adds all groups of another list; null: of a model that was moved from.
void add_groups(GroupList& list, const GroupList* more);
/// Counts one more holder of a list.
GroupList* hold(GroupList* list) noexcept;
/// Counts one less; the last one ends the list.
void release(GroupList* list) noexcept;
std::size_t size_of(const GroupList* list) noexcept;
/// Returns a group of a list; null: of a model that was moved from.
/// @throws UsageError when it has ended since the model was made, or the model was moved from
Group& group_of(const GroupList* list, std::size_t number, SourceLocation where);
void require_list(const GroupList* list, SourceLocation where);
bool same_groups(const GroupList* a, const GroupList* b) noexcept;

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit::spi SHARDKIT_CHECKED_BUILD {

/// The groups of a model in order, for a range-based loop; one that has ended is refused when it is reached.
class Groups {
  public:
    Groups(const Model& model, SourceLocation where);
    const Groups& begin() const noexcept { return *this; }
    std::nullptr_t end() const noexcept { return nullptr; }
    bool operator!=(std::nullptr_t /*end*/) const noexcept { return at_ != size_; }
    void operator++() noexcept { ++at_; }
    detail::Group& operator*() const { return detail::group_of(list_, at_, where_); }

  private:
    const detail::GroupList* list_;
    std::size_t at_ = 0;
    std::size_t size_;
    SourceLocation where_;
};
/// All that the library has of each group of a model:
///     for (spi::Group& group : spi::groups(model)) { ... }
/// @throws UsageError when the model was moved from
inline Groups groups(const Model& model, SourceLocation where = SourceLocation::current()) { return {model, where}; }
/// A temporary ends before the loop begins.
Groups groups(const Model&& model, SourceLocation where = SourceLocation::current()) = delete;

}  // namespace shardkit::spi SHARDKIT_CHECKED_BUILD

namespace shardkit SHARDKIT_CHECKED_BUILD {

/// A model: its groups, in the order in which collectives over all of them run.
///     Model model{embedding, blocks, head};
/// Each part is a Sharded, a range of them, for example a vector, or one of several models. Groups may have different
/// policies and precisions. A Model is a value, cheap to copy and to keep as a member. It lists the groups that exist
/// when it is made, which must outlive it: their Sharded objects may be moved afterwards, but groups that are added
/// to a range later are not part of the model.
class Model {
    struct NoGroups {};

  public:
    template <class... T>
    requires(sizeof...(T) > 1 || !(detail::IsModel<T> || ...)) explicit Model(T&... parts) : Model(NoGroups{}) {
        constexpr bool is_sharded = detail::all_sharded<T...>;
        static_assert(sizeof...(T) > 0, "Model: give at least one Sharded");
        static_assert(sizeof...(T) == 0 || is_sharded,
                      "Model: each argument must be a Sharded or a range of Sharded, or one of several models");
        if constexpr (is_sharded) { (add(parts), ...); }
    }
    Model(const Model& other) noexcept : list_(detail::hold(other.list_)) {}
    Model(Model&& other) noexcept : list_(std::exchange(other.list_, nullptr)) {}
    Model& operator=(Model other) noexcept {
        std::swap(list_, other.list_);
        return *this;
    }
    ~Model() { detail::release(list_); }

    std::size_t size() const noexcept { return detail::size_of(list_); }
    /// Whether it was not moved from.
    bool valid() const noexcept { return list_ != nullptr; }

    /// Calls f(GroupRef) for every group, in order.
    /// @throws UsageError when one has ended since the model was made, or the model was moved from
    template <class F>
    void for_each(F&& f, SourceLocation where = SourceLocation::current()) const {
        for (detail::Group& group : spi::groups(*this, where)) {
            GroupRef of_model(group);
            f(of_model);
        }
    }
    /// Sets every element of every group, as Sharded::initialize does; the host calls `value`. Local work.
    template <class F>
    void initialize(F value, SourceLocation where = SourceLocation::current()) const {
        for (detail::Group& group : spi::groups(*this, where)) { detail::initialize_values(group, value, where); }
    }

    /// Compares whether both are the same groups in the same order.
    friend bool operator==(const Model& a, const Model& b) noexcept { return detail::same_groups(a.list_, b.list_); }

  private:
    friend spi::Groups;

    explicit Model(NoGroups /*none*/) : list_(detail::new_list()) {}
    template <class Part>
    void add(Part& part) {
        if constexpr (detail::IsSharded<std::remove_const_t<Part>>::value) {
            detail::add_group(*list_, part.group_.get());
        } else if constexpr (detail::IsModel<Part>) {
            detail::add_groups(*list_, part.list_);
        } else {
            for (auto& layer : part) { add(layer); }
        }
    }

    detail::GroupList* list_;  // null: moved from
};

}  // namespace shardkit SHARDKIT_CHECKED_BUILD

namespace shardkit::spi SHARDKIT_CHECKED_BUILD {
[[gnu::always_inline]] inline Groups::Groups(const Model& model, SourceLocation where)
    : list_(model.list_), size_(detail::size_of(list_)), where_(where) {
    detail::require_list(list_, where);
}
}  // namespace shardkit::spi SHARDKIT_CHECKED_BUILD

#ifndef SHARDKIT_COMPILED
#include <shardkit/step/group_list.hpp>
#endif

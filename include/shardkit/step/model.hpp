// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/core/elements.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/argument_types.hpp>
#include <shardkit/step/precisions.hpp>

namespace shardkit SHARDKIT_BUILD {

/// One group of a model without its types, as model.for_each passes it on. An accumulation's add_zero, skip and
/// set_microbatches and an optimizer's steps accept it like a Sharded. It refers to the group, which must outlive it.
class GroupRef {
  public:
    const std::string& path() const noexcept { return group_->path(); }
    bool trainable() const noexcept { return group_->trainable(); }
    /// Returns the sizes of the flat buffer and of its shards.
    const layout::FlatLayout& layout() const noexcept { return group_->layout(); }
    /// Returns the name, shape, attributes and place of each parameter, in order.
    std::span<const PlacedParameter> parameters() const noexcept { return group_->geometry().parameters; }
    Context& context() const noexcept { return group_->context(); }
    /// Returns the elements that this rank holds of each parameter and of its master weights.
    std::vector<ShardInfo> shards() const { return group_->shards(); }

    /// Sets every element, as Sharded::initialize.
    template <class F>
    void initialize(F value, SourceLocation where = SourceLocation::current()) const {
        group_->initialize(value, where);
    }
    /// Sets one parameter, by its name or its number, from its full values, as Sharded::load.
    template <class NameOrNumber, class Values>
    void load(const NameOrNumber& parameter, const Values& values,
              SourceLocation where = SourceLocation::current()) const {
        if constexpr (detail::ValuesRules<const Values>::are_read) {
            using Value = detail::ElementIn<const Values>;
            const auto read = detail::elements_of(values);
            const std::size_t number = group_->geometry().number_of(parameter, where);
            group_->check_whole("load", number, read.size(), std::as_bytes(read), where);
            group_->write(number, detail::TensorValueSource::of(std::span<const Value>(read)), where);
        }
    }

  private:
    friend detail::Access;
    explicit GroupRef(detail::Group& group) noexcept : group_(&group) {}
    detail::Group& live(SourceLocation /*where*/) const noexcept { return *group_; }

    detail::Group* group_;
};

/// The groups of a model in order, without their types: what accumulations, schedules and plans take. A Model is one.
/// Cheap to copy. The groups must outlive it; their Sharded objects may be moved meanwhile.
class Groups {
  public:
    std::size_t size() const noexcept { return members_ == nullptr ? 0 : members_->size(); }

    /// Calls f(GroupRef) for every group, in order.
    /// @throws UsageError when one has ended since the model was made, or the model was moved from
    template <class F>
    void for_each(F&& f, SourceLocation where = SourceLocation::current()) const {
        for (detail::Group& group : each(where)) {
            auto of_model = detail::Access::make<GroupRef>(group);
            f(of_model);
        }
    }
    /// Sets every element of every group, as Sharded::initialize does on the host. Local work.
    template <class F>
    void initialize(F value, SourceLocation where = SourceLocation::current()) const {
        for (detail::Group& group : each(where)) { group.initialize(value, where); }
    }

    /// Returns the context of the model's groups, with the rank's scalars and its world.
    /// @throws UsageError when the model has no groups, or two were made on different ranks' contexts: a divisor, a
    ///         norm and a step belong to one mesh
    Context& context(SourceLocation where = SourceLocation::current()) const;

    /// Compares whether both are the same groups in the same order.
    friend bool operator==(const Groups& a, const Groups& b) noexcept {
        return a.members_.get() == b.members_.get() || (a.members_ && b.members_ && *a.members_ == *b.members_);
    }

  protected:
    struct Member {
        detail::Group* group;
        std::uint64_t identity;
        std::weak_ptr<void> life;
        std::string path;

        friend bool operator==(const Member& a, const Member& b) noexcept { return a.identity == b.identity; }
    };

    explicit Groups(detail::List<Member> members)
        : members_(std::make_shared<const detail::List<Member>>(std::move(members))) {}
    static const detail::List<Member>& members(const Groups& groups) noexcept { return *groups.members_; }
    static Member member(detail::Group& group) { return {&group, group.identity(), group.life(), group.path()}; }

  private:
    friend detail::Access;
    /// The groups in order, for a range-based loop; one that has ended is refused when it is reached.
    class Each {
      public:
        Each(const detail::List<Member>& members, SourceLocation where) noexcept
            : at_(members.begin()), end_(members.end()), where_(where) {}
        const Each& begin() const noexcept { return *this; }
        std::nullptr_t end() const noexcept { return nullptr; }
        bool operator!=(std::nullptr_t /*end*/) const noexcept { return at_ != end_; }
        void operator++() noexcept { ++at_; }
        detail::Group& operator*() const {
            if (at_->life.expired()) [[unlikely]] { refuse_ended(*at_, where_); }
            return *at_->group;
        }

      private:
        const Member* at_;
        const Member* end_;
        SourceLocation where_;
    };
    Each each(SourceLocation where) const {
        if (!members_) [[unlikely]] { refuse_moved(where); }
        return {*members_, where};
    }
    [[noreturn]] static void refuse_ended(const Member& member, SourceLocation where);
    [[noreturn]] static void refuse_moved(SourceLocation where);

    std::shared_ptr<const detail::List<Member>> members_;  // null: moved from
};

inline Context& Groups::context(SourceLocation where) const {
    Context* first = nullptr;
    std::string_view path;
    for (detail::Group& group : each(where)) {
        if (first == nullptr) {
            first = &group.context();
            path = group.path();
        } else {
            first->require_same(path, group.context(), group.path(), where);
        }
    }
    if (first == nullptr) {
        detail::Group::refuse_use(where, "Model: this model has no groups: every range is empty");
    }
    return *first;
}

inline void Groups::refuse_moved(SourceLocation where) {
    detail::Group::refuse_use(where,
                              "a Model, or an optimizer over it, was used after it was moved from: use the "
                              "one that it was moved to, or copy the "
                              "Model instead");
}

inline void Groups::refuse_ended(const Member& member, SourceLocation where) {
    if (member.group == nullptr) {
        detail::Group::refuse_use(where, "Model: it was made of a Sharded that had been moved from");
    }
    throw_usage_error(where, "'", member.path,
                      "': this group of the model has ended or was assigned to since the model was made; expected "
                      "groups that outlive their model: make the model anew, and its optimizer");
}

/// A model: its groups, in the order in which collectives over all of them run.
///     Model model{embedding, blocks, head};
/// Each part is a Sharded, a range of them, for example a vector, or one of several models. The type names only the
/// precisions of the groups: Model<> is any model of fp32 groups, Model<DefaultPrecision<bf16>> one of bf16 groups. A
/// Model is a value, cheap to copy and to keep as a member. It lists the groups that exist when it is made: a range
/// may be moved afterwards, but groups that are added to it later are not part of the model.
template <class PrecisionType = DefaultPrecision<float>>
class Model : public Groups {
    using Base = Groups;

  public:
    using Precision = PrecisionType;

    template <class... T>
    requires(sizeof...(T) > 1 || !(std::is_base_of_v<Base, T> || ...)) explicit Model(T&... parts)
        : Base(list(parts...)) {}

    /// Sets every element of every group, as Sharded::initialize does: from value(path, parameter name, index in the
    /// whole parameter), or from value(path, parameter name)(index), which the engine's kernels call. Local work.
    template <class F>
    void initialize(F value, SourceLocation where = SourceLocation::current()) const {
        if constexpr (detail::GivesFunctions<F>) {
            for_each_state([&](auto& state) { state.fill(value, where); }, where);
        } else {
            Base::initialize(value, where);
        }
    }
    /// Calls f(detail::GroupState<P>&) for every group, in order: for whoever needs the element types.
    template <class F>
    [[gnu::always_inline]] void for_each_state(const F& f, SourceLocation where = SourceLocation::current()) const {
        for (detail::Group& group : detail::Access::each(*this, where)) { with_state(group, f); }
    }
    /// Calls f(detail::GroupState<P>&) for one group of a model of this type.
    template <class F>
    [[gnu::always_inline]] static void with_state(detail::Group& group, const F& f) {
        as_state(group, f, precisions{});
    }

  private:
    using precisions = detail::PrecisionsOf<Precision>;
    using typename Base::Member;

    template <class... T>
    static detail::List<Member> list(T&... parts) {
        constexpr bool is_sharded = detail::all_sharded<T...>;
        static_assert(sizeof...(T) > 0, "Model: give at least one Sharded");
        static_assert(sizeof...(T) == 0 || is_sharded,
                      "Model: each argument must be a Sharded or a range of Sharded, or one of several models");
        detail::List<Member> members;
        if constexpr (is_sharded) {
            constexpr bool fits =
                (detail::are_among(precisions{}, detail::PrecisionsOf<typename LayerOf<T>::Precision>{}) && ...);
            static_assert(fits,
                          "Model<Precision>: a group has another precision; name it, or Precisions<...> of all");
            if constexpr (fits) { (add(members, parts), ...); }
        }
        return members;
    }
    template <class Part>
    static void add(detail::List<Member>& members, Part& part) {
        if constexpr (detail::IsSharded<std::remove_const_t<Part>>::value) {
            if (detail::Access::moved_from(part)) {
                members.push_back({nullptr, 0, {}, {}});  // refused where the model is used, with a line to report
            } else {
                members.push_back(Base::member(detail::Access::state(part)));
            }
        } else if constexpr (std::is_base_of_v<Base, Part>) {
            const auto& more = Base::members(part);
            members.append(more.begin(), more.end());
        } else {
            for (auto& layer : part) { add(members, layer); }
        }
    }
    template <class F, class First, class... Rest>
    [[gnu::always_inline]] static void as_state(detail::Group& group, const F& f,
                                                Precisions<First, Rest...> /*list*/) {
        if constexpr (sizeof...(Rest) > 0) {
            if (auto* const state = group.as<First>(); state != nullptr) { return f(*state); }
            as_state(group, f, Precisions<Rest...>{});
        } else {
            f(*group.as<First>());  // the only one left
        }
    }
};

template <class... T>
Model(T&...) -> Model<detail::PrecisionOf<T...>>;

}  // namespace SHARDKIT_BUILD

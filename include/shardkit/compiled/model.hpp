// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/compiled/context.hpp>
#include <shardkit/compiled/interface.hpp>
#include <shardkit/compiled/sharded_state.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/argument_types.hpp>

namespace shardkit SHARDKIT_BUILD {

/// One group of a model without its types, as model.for_each passes it on: see step/model.hpp.
class GroupRef {
  public:
    explicit GroupRef(compiled::Group& group) noexcept : group_(&group) {}

    const std::string& path() const noexcept { return *group_->path; }
    bool trainable() const noexcept { return group_->trainable; }
    const layout::FlatLayout& layout() const noexcept { return *group_->layout; }
    std::span<const PlacedParameter> parameters() const noexcept { return group_->parameters; }
    template <class Info = ShardInfo>
    std::vector<Info> shards() const {
        std::vector<Info> list;
        group_->list_shards(list);
        return list;
    }
    template <class F>
    void initialize(F value, SourceLocation where = SourceLocation::current()) const {
        detail::InitializerOf<F> values(value);
        group_->initialize(values, where);
    }
    template <class NameOrNumber, class Values>
    void load(const NameOrNumber& parameter, const Values& values,
              SourceLocation where = SourceLocation::current()) const {
        if constexpr (detail::ValuesRules<const Values>::are_read) {
            const auto read = detail::elements_of(values);
            std::size_t number = 0;
            if constexpr (std::integral<NameOrNumber>) {
                number = group_->number_of(static_cast<std::ptrdiff_t>(parameter), where);
            } else {
                number = group_->number_of(std::string_view(parameter), where);
            }
            group_->load(number,
                         detail::TensorValueSource::of(std::span<const detail::ElementIn<const Values>>(read)),
                         read.size(), std::as_bytes(read), where);
        }
    }

    compiled::Group& core() const noexcept { return *group_; }

  private:
    friend detail::Access;
    const GroupRef& live(SourceLocation /*where*/) const noexcept { return *this; }

    compiled::Group* group_;
};

/// The groups of a model in order, without their types. A Model is one. Cheap to copy. The groups must outlive it;
/// their Sharded objects may be moved meanwhile.
class Groups {
  public:
    Groups(const Groups& other) noexcept
        : groups_(other.groups_.get() == nullptr ? nullptr : other.groups_->copy()) {}
    Groups(Groups&&) noexcept = default;
    Groups& operator=(Groups other) noexcept {
        std::swap(groups_, other.groups_);
        return *this;
    }

    std::size_t size() const noexcept { return groups_.get() == nullptr ? 0 : groups_->listed.size(); }
    /// Calls f(GroupRef) for every group, in order.
    /// @throws UsageError when one has ended since the model was made, or the model was moved from
    template <class F>
    void for_each(F&& f, SourceLocation where = SourceLocation::current()) const {
        for (compiled::Group* const group : live(where)) {
            GroupRef of_model(*group);
            f(of_model);
        }
    }
    /// Sets every element of every group, as Sharded::initialize. Local work.
    template <class F>
    void initialize(F value, SourceLocation where = SourceLocation::current()) const {
        detail::InitializerOf<F> values(value);
        for (compiled::Group* const group : live(where)) { group->initialize(values, where); }
    }
    friend bool operator==(const Groups& a, const Groups& b) noexcept {
        return a.groups_.get() == b.groups_.get() ||
               (a.groups_.get() != nullptr && b.groups_.get() != nullptr && a.groups_->same(*b.groups_));
    }

    /// @throws UsageError when the model was moved from
    const compiled::Groups& core(SourceLocation where) const {
        if (groups_.get() == nullptr) [[unlikely]] {
            compiled::refuse_use(
                where,
                "a Model, or an optimizer over it, was used after it was moved from: use the one that "
                "it was moved to, or copy the Model instead");
        }
        return *groups_;
    }

  protected:
    explicit Groups(compiled::Groups* made) noexcept : groups_(made) {}

  private:
    std::span<compiled::Group* const> live(SourceLocation where) const {
        const compiled::Groups& groups = core(where);
        groups.require_live(where);
        return groups.listed;
    }

    compiled::Handle<compiled::Groups> groups_;
};

}  // namespace SHARDKIT_BUILD

namespace shardkit SHARDKIT_BUILD {

/// A model: its groups, in the order in which collectives over all of them run: see step/model.hpp.
template <class PrecisionType = DefaultPrecision<float>>
class Model : public Groups {
    using Base = Groups;

  public:
    using Precision = PrecisionType;

    template <class... T>
    requires(sizeof...(T) > 1 || !(std::is_base_of_v<Base, T> || ...)) explicit Model(T&... parts)
        : Base(list(parts...)) {}

  private:
    template <class... T>
    static compiled::Groups* list(T&... parts) {
        constexpr bool is_sharded = detail::all_sharded<T...>;
        static_assert(sizeof...(T) > 0, "Model: give at least one Sharded");
        static_assert(sizeof...(T) == 0 || is_sharded,
                      "Model: each argument must be a Sharded or a range of Sharded, or one of several models");
        std::vector<compiled::Group*> groups;
        if constexpr (is_sharded) {
            constexpr bool fits =
                (detail::are_among(detail::PrecisionsOf<Precision>{},
                                   detail::PrecisionsOf<typename detail::LayerOf<T>::type::Precision>{}) &&
                 ...);
            static_assert(fits,
                          "Model<Precision>: a group has another precision; name it, or Precisions<...> of all");
            (add(groups, parts), ...);
        }
        return compiled::list_groups(groups);
    }
    template <class Part>
    static void add(std::vector<compiled::Group*>& groups, Part& part) {
        if constexpr (detail::IsSharded<std::remove_const_t<Part>>::value) {
            // One that was moved from is refused where the model is used, with a line to report.
            groups.push_back(detail::Access::moved_from(part) ? nullptr : &detail::Access::state(part).core());
        } else if constexpr (std::is_base_of_v<Base, Part>) {
            const auto& more = part.core(SourceLocation{}).listed;
            groups.insert(groups.end(), more.begin(), more.end());
        } else {
            for (auto& layer : part) { add(groups, layer); }
        }
    }
};

template <class... T>
Model(T&...) -> Model<detail::PrecisionOf<T...>>;

/// A model's full parameters, current on every rank while this object lives: see step/summon_full_params.hpp.
class FullParams {
  public:
    explicit FullParams(compiled::Object* open) noexcept : open_(open) {}

  private:
    compiled::Handle<compiled::Object> open_;
};
[[nodiscard]] inline FullParams summon_full_params(const Groups& groups,
                                                   SourceLocation where = SourceLocation::current()) {
    return FullParams(groups.core(where).summon(where));
}

/// Returns the order in which ranks take the slices of this model: see step/slices.hpp.
inline SliceOrder slice_order(const Groups& model, SourceLocation where = SourceLocation::current()) {
    return model.core(where).slice_order(where);
}
/// Returns the slice of the global batch that this rank takes at `microbatch` of every step: see step/slices.hpp.
template <std::integral Number>
std::size_t slice_of(const Groups& model, Number microbatch, SourceLocation where = SourceLocation::current()) {
    return model.core(where).slice_of(static_cast<std::ptrdiff_t>(microbatch), where);
}

}  // namespace SHARDKIT_BUILD

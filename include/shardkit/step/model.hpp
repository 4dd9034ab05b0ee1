// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
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
#include <shardkit/detail/range.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/needs_checkpoint.hpp>

namespace shardkit {

/// Several precisions of one model: Model<Engine, Precisions<DefaultPrecision<bf16>, DefaultPrecision<float>>>. Which
/// order they are named in makes another type; `Model model{...}` names them in an order of its own, by their
/// elements.
template <class... P>
struct Precisions {};

namespace detail {
template <class T>
struct IsSharded : std::false_type {};
/// Says what stands where a layer was given for the model of one.
template <class LayersEngine>
struct NeedsModel {
    static constexpr bool is_model = sizeof(LayersEngine) == 0;
    static_assert(is_model, "expected a Model and not a layer: write Model model{layer} before");
    using Engine = LayersEngine;
};
/// Says the same in place of the model that a constructor goes on with.
template <class Model, class Layer>
const Model& needs_model(const Layer& /*layer*/) noexcept {
    static_cast<void>(NeedsModel<Layer>{});
    return *static_cast<const Model*>(nullptr);
}
template <class G, class P, class E, class R>
struct IsSharded<Sharded<G, P, E, R>> : std::true_type {};

template <class T>
struct LayerOf {
    using type = T;
};
template <Range T>
struct LayerOf<T> {
    using type = RangeValue<T>;
};
}  // namespace detail

/// The Sharded type behind an argument of Model: itself, or the elements of a range.
template <class T>
using LayerOf = typename detail::LayerOf<T>::type;

namespace detail {

template <class... T>
inline constexpr bool all_sharded = sizeof...(T) > 0 && (IsSharded<shardkit::LayerOf<T>>::value && ...);

/// The engine and the precisions of parts that are no groups: Model's assertions say what is wrong with them.
struct NoEngine {};
template <bool Sharded, class... T>
struct FirstEngine {
    using type = NoEngine;
};
template <class First, class... T>
struct FirstEngine<true, First, T...> {
    using type = typename shardkit::LayerOf<First>::Engine;
};
template <class... T>
using FirstEngineOf = typename FirstEngine<all_sharded<T...>, T...>::type;

/// Orders precisions by their elements, so that models of equal precisions have one type.
template <class P>
inline constexpr std::array<ElementType, 4> precision_key{
    element_type_of<typename P::Gather>, element_type_of<typename P::Gradient>,
    element_type_of<typename P::Reduction>, element_type_of<typename P::Master>};

/// `Sorted...` with P in its place, unless it is there.
template <class P, class Before, class Sorted>
struct InsertPrecision;
template <class P, class... Before>
struct InsertPrecision<P, Precisions<Before...>, Precisions<>> {
    using type = Precisions<Before..., P>;
};
template <class P, class... Before, class First, class... Rest>
struct InsertPrecision<P, Precisions<Before...>, Precisions<First, Rest...>> {
    static constexpr bool here = precision_key<P> < precision_key<First>;
    using later = InsertPrecision<P, Precisions<Before..., First>, Precisions<Rest...>>;
    struct Here {
        using type = Precisions<Before..., P, First, Rest...>;
    };
    using type = typename std::conditional_t<here, Here, later>::type;
};
template <class P, class... Before, class... Rest>
struct InsertPrecision<P, Precisions<Before...>, Precisions<P, Rest...>> {
    using type = Precisions<Before..., P, Rest...>;
};
template <class Sorted, class... P>
struct SortPrecisions {
    using type = Sorted;
};
template <class Sorted, class P, class... Rest>
struct SortPrecisions<Sorted, P, Rest...>
    : SortPrecisions<typename InsertPrecision<P, Precisions<>, Sorted>::type, Rest...> {};

/// One precision is named by itself.
template <class P>
struct NamePrecisions {
    using type = P;
};
template <class P>
struct NamePrecisions<Precisions<P>> {
    using type = P;
};
template <bool Sharded, class... T>
struct ModelPrecision {
    using type = DefaultPrecision<float>;
};
template <class... T>
struct ModelPrecision<true, T...>
    : NamePrecisions<typename SortPrecisions<Precisions<>, typename shardkit::LayerOf<T>::Precision...>::type> {};
template <class... T>
using PrecisionOf = typename ModelPrecision<all_sharded<T...>, T...>::type;

/// The list of the precisions that a model's parameter names.
template <class P>
struct PrecisionList {
    using type = Precisions<P>;
};
template <class... P>
struct PrecisionList<Precisions<P...>> {
    using type = Precisions<P...>;
};
template <class P>
using PrecisionsOf = typename PrecisionList<P>::type;
template <class Wanted, class... P>
constexpr bool is_among(Precisions<P...> /*list*/) {
    return (std::is_same_v<Wanted, P> || ...);
}

}  // namespace detail

inline namespace SHARDKIT_BUILD {

/// One group of a model, whatever its types are: what model.for_each hands on. An accumulation's add_zero, skip and
/// set_microbatches and an optimizer's steps take it as they take a Sharded. Refers to the group, which outlives it.
template <class EngineType>
class GroupRef {
  public:
    using Engine = EngineType;

    const std::string& path() const noexcept { return group_->path(); }
    bool trainable() const noexcept { return group_->trainable(); }
    /// Sizes of the flat buffer and of its shards.
    const FlatLayout& layout() const noexcept { return group_->layout(); }
    /// Name, shape, attributes and place of each parameter, in order.
    std::span<const PlacedParameter> parameters() const noexcept { return group_->geometry().parameters; }
    Context<Engine>& context() const noexcept { return group_->context(); }
    /// What this rank holds of each parameter and its master copy.
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
            group_->load(group_->geometry().number_of(parameter, where), detail::elements_of(values), where);
        }
    }

  private:
    friend detail::Access;
    explicit GroupRef(detail::Group<Engine>& group) noexcept : group_(&group) {}
    detail::Group<Engine>& live(SourceLocation /*where*/) const noexcept { return *group_; }

    detail::Group<Engine>* group_;
};

/// The groups of a model in their order, without their types: what accumulations, schedules and plans are made with.
/// A Model is one. Cheap to copy. The groups outlive it, wherever their Sharded are moved to meanwhile.
template <class EngineType>
class Groups {
  public:
    using Engine = EngineType;

    std::size_t size() const noexcept { return members_ == nullptr ? 0 : members_->size(); }

    /// f(GroupRef<Engine>) for every group, in order.
    /// @throws UsageError when one has ended since the model was made, or the model was moved from
    template <class F>
    void for_each(F&& f, SourceLocation where = SourceLocation::current()) const {
        walk(
            [&](detail::Group<Engine>& group) {
                auto of_model = detail::Access::make<GroupRef<Engine>>(group);
                f(of_model);
            },
            where);
    }
    /// Sets every element of every group from value(path, parameter name, index in the whole parameter), as
    /// Sharded::initialize. Local work.
    template <class F>
    void initialize(F value, SourceLocation where = SourceLocation::current()) const {
        walk([&](detail::Group<Engine>& group) { group.initialize(value, where); }, where);
    }

    /// The context of the model's groups: where a rank's own scalars and its world are taken from.
    /// @throws UsageError when the model has no groups, or two were made on different ranks' contexts: a divisor, a
    ///         norm and a step belong to one mesh
    Context<Engine>& context(SourceLocation where = SourceLocation::current()) const;

    /// The same groups in the same order.
    friend bool operator==(const Groups& a, const Groups& b) noexcept {
        return a.members_ == b.members_ ||
               (a.members_ != nullptr && b.members_ != nullptr && *a.members_ == *b.members_);
    }

  protected:
    struct Member {
        detail::Group<Engine>* group;
        std::uint64_t identity;
        std::weak_ptr<const void> life;
        std::string path;

        friend bool operator==(const Member& a, const Member& b) noexcept { return a.identity == b.identity; }
    };

    explicit Groups(std::vector<Member> members)
        : members_(std::make_shared<const std::vector<Member>>(std::move(members))) {}
    static Member member(detail::Group<Engine>& group) {
        return {&group, group.identity(), group.life(), group.path()};
    }

  private:
    friend detail::Access;
    /// f(Group&) for every group, in order.
    template <class F>
    void walk(const F& f, SourceLocation where) const {
        if (members_ == nullptr) [[unlikely]] { refuse_moved(where); }
        for (const Member& each : *members_) {
            if (each.life.expired()) [[unlikely]] { refuse_ended(each, where); }
            f(*each.group);
        }
    }
    [[noreturn]] static void refuse_ended(const Member& member, SourceLocation where);
    [[noreturn]] static void refuse_moved(SourceLocation where);

    std::shared_ptr<const std::vector<Member>> members_;  // null: moved from
};

// Out of the class, so that `extern template` keeps them out of a file.

template <class Engine>
Context<Engine>& Groups<Engine>::context(SourceLocation where) const {
    Context<Engine>* first = nullptr;
    std::string_view path;
    walk(
        [&](detail::Group<Engine>& group) {
            if (first == nullptr) {
                first = &group.context();
                path = group.path();
            } else {
                first->require_same(path, group.context(), group.path(), where);
            }
        },
        where);
    if (first == nullptr) {
        detail::Group<Engine>::refuse_use(where, "Model: this model has no groups: every range is empty");
    }
    return *first;
}

template <class Engine>
void Groups<Engine>::refuse_moved(SourceLocation where) {
    detail::Group<Engine>::refuse_use(where,
                                      "a Model, or an optimizer over it, was used after it was moved from: use the "
                                      "one that it was moved to, or copy the "
                                      "Model instead");
}

template <class Engine>
void Groups<Engine>::refuse_ended(const Member& member, SourceLocation where) {
    if (member.group == nullptr) {
        detail::Group<Engine>::refuse_use(where, "Model: it was made of a Sharded that had been moved from");
    }
    throw_usage_error(where, "'", member.path,
                      "': this group of the model has ended or was assigned to since the model was made; expected "
                      "groups that outlive their model: make the model anew, and its optimizer");
}

/// A model: its groups, in the order in which collectives that touch all of them run.
///     Model model{embedding, blocks, head};
/// Each part is a Sharded or a range of them, a vector say. The type knows the engine and the groups' precisions, and
/// nothing else of them: Model<Engine> is every model of fp32 groups, Model<Engine, DefaultPrecision<bf16>> one of
/// bf16. A value, cheap to copy and to keep as a member. It lists the groups that are there when it is made, so a
/// range may be moved afterwards, and what is added to it is not of the model.
template <class EngineType, class PrecisionType = DefaultPrecision<float>>
class Model : public Groups<EngineType> {
    using Base = Groups<EngineType>;

  public:
    using Engine = EngineType;
    using Precision = PrecisionType;

    template <class... T>
    requires(!(std::is_base_of_v<Base, T> || ...)) explicit Model(T&... parts) : Base(list(parts...)) {}

    /// f(detail::GroupState<Engine, P>&) for what stands behind every group, in order: for optimizers, which need the
    /// elements' types.
    template <class F>
    void for_each_state(const F& f, SourceLocation where = SourceLocation::current()) const {
        detail::Access::walk(
            *this, [&](detail::Group<Engine>& group) { as_state(group, f, precisions{}); }, where);
    }

  private:
    using precisions = detail::PrecisionsOf<Precision>;
    using typename Base::Member;

    template <class... T>
    static std::vector<Member> list(T&... parts) {
        constexpr bool is_sharded = detail::all_sharded<T...>;
        static_assert(sizeof...(T) > 0, "Model: give at least one Sharded");
        static_assert(sizeof...(T) == 0 || is_sharded,
                      "Model: each argument must be a Sharded or a range of Sharded");
        std::vector<Member> members;
        if constexpr (is_sharded) {
            constexpr bool one_engine = (std::is_same_v<typename LayerOf<T>::Engine, Engine> && ...);
            static_assert(one_engine, "Model: the groups of one model must be of one engine");
            constexpr bool fits = (detail::is_among<typename LayerOf<T>::Precision>(precisions{}) && ...);
            static_assert(
                fits, "Model<Engine, Precision>: a group has another precision; name it, or Precisions<...> of all");
            if constexpr (one_engine && fits) { (add(members, parts), ...); }
        }
        return members;
    }
    template <class Part>
    static void add(std::vector<Member>& members, Part& part) {
        if constexpr (detail::IsSharded<std::remove_const_t<Part>>::value) {
            if (detail::Access::moved_from(part)) {
                members.push_back({nullptr, 0, {}, {}});  // refused where the model is used, with a line to name
            } else {
                members.push_back(Base::member(detail::Access::state(part)));
            }
        } else {
            for (auto& layer : part) { add(members, layer); }
        }
    }
    template <class F, class First, class... Rest>
    static void as_state(detail::Group<Engine>& group, const F& f, Precisions<First, Rest...> /*list*/) {
        if constexpr (sizeof...(Rest) > 0) {
            if (auto* const state = group.template as<First>(); state != nullptr) { return f(*state); }
            as_state(group, f, Precisions<Rest...>{});
        } else {
            f(*group.template as<First>());  // the last one that is left
        }
    }
};

template <class... T>
Model(T&...) -> Model<detail::FirstEngineOf<T...>, detail::PrecisionOf<T...>>;

}  // namespace SHARDKIT_BUILD

}  // namespace shardkit

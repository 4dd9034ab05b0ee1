// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <shardkit/compiled/core.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/step/slices.hpp>
#include <shardkit/step/summon_full_params.hpp>

// A model of the core.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

/// A list of groups that the core takes as a model of precisions P.
template <class EngineType, class P>
class ModelOf : public shardkit::Groups<EngineType> {
    using Base = shardkit::Groups<EngineType>;

  public:
    using Engine = EngineType;
    using Precision = P;
    using typename Base::Member;

    explicit ModelOf(shardkit::detail::List<Member> members) : Base(std::move(members)) {}
    explicit ModelOf(const Base& groups) : Base(groups) {}
    static Member member_of(shardkit::detail::Group<Engine>& group) { return Base::member(group); }

    /// A Model takes parts of models.
    shardkit::Model<Engine, P> model() const {
        const ModelOf none{shardkit::detail::List<Member>{}};
        return shardkit::Model<Engine, P>(*this, none);
    }
};

template <class EngineType>
class GroupsOf final : public Groups {
  public:
    using Engine = EngineType;
    explicit GroupsOf(std::span<Group* const> groups) : Groups(engine_core<Engine>(), groups), core(list(groups)) {
        for (const Group* const group : groups) {
            if (group != nullptr && &group->engine() != &this->engine() && foreign == nullptr) { foreign = group; }
        }
    }
    GroupsOf(const GroupsOf& other)
        : Groups(other.engine(), other.listed), core(other.core) {  // NOLINT(bugprone-copy-constructor-init)
        foreign = other.foreign;
    }

    Groups* copy() const override { return new GroupsOf(*this); }
    void require_live(SourceLocation where) const override {
        // Walking through them looks at each.
        for (const shardkit::detail::Group<Engine>& group : shardkit::detail::Access::each(core, where)) {
            static_cast<void>(group);
        }
    }
    bool same(const Groups& other) const noexcept override {
        return &other.engine() == &engine() && core == static_cast<const GroupsOf&>(other).core;
    }
    SliceOrder slice_order(SourceLocation where) const override { return shardkit::slice_order(core, where); }
    std::size_t slice_of(std::ptrdiff_t microbatch, SourceLocation where) const override {
        return shardkit::slice_of(core, microbatch, where);
    }
    Object* summon(SourceLocation where) const override {
        struct OpenWindows final : Object {
            explicit OpenWindows(FullParams<Engine> windows)
                : Object(engine_core<Engine>()), open(std::move(windows)) {}
            FullParams<Engine> open;
        };
        return new OpenWindows(summon_full_params(core, where));
    }
    Accumulation* begin(std::size_t count, SourceLocation where) const override {
        return new AccumulationOf<Engine>(count == 0 ? shardkit::Accumulation<Engine>(core, until_reduced, where)
                                                     : shardkit::Accumulation<Engine>(core, count, where));
    }
    Reduced* assume_reduced(const Divisor& divisor, LossScale* scale, SourceLocation where) const override {
        auto* const scaled = loss_scale_on<Engine>(scale, where);
        return new ReducedOf<Engine>(scaled == nullptr ? shardkit::assume_reduced(core, divisor, where)
                                                       : shardkit::assume_reduced(core, divisor, *scaled, where));
    }

    /// Returns them as a model of those precisions.
    template <class P = AllPrecisions>
    shardkit::Model<Engine, P> model() const {
        return ModelOf<Engine, P>(core).model();
    }

    shardkit::Groups<Engine> core;

  private:
    static ModelOf<Engine, AllPrecisions> list(std::span<Group* const> groups) {
        using List = ModelOf<Engine, AllPrecisions>;
        shardkit::detail::List<typename List::Member> members;
        for (Group* const group : groups) {
            if (group == nullptr || &group->engine() != &engine_core<Engine>()) {
                members.push_back({nullptr, 0, {}, {}});
            } else {
                members.push_back(List::member_of(static_cast<AnyGroup<Engine>&>(*group).core()));
            }
        }
        return List(std::move(members));
    }
};

template <class Engine>
Groups* AnyGroup<Engine>::list(std::span<Group* const> groups) const {
    return new GroupsOf<Engine>(groups);
}

extern template class GroupsOf<host::Engine>;

}  // namespace SHARDKIT_CHECKED_BUILD

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

/// A list of groups that the core takes as a model of all its precisions.
class ModelOf : public shardkit::Groups {
    using Base = shardkit::Groups;

  public:
    using Precision = AllPrecisions;
    using Base::Member;

    explicit ModelOf(shardkit::detail::List<Member> members) : Base(std::move(members)) {}
    explicit ModelOf(const Base& groups) : Base(groups) {}
    static Member member_of(shardkit::detail::Group& group) { return Base::member(group); }

    /// A Model takes parts of models.
    shardkit::Model<AllPrecisions> model() const {
        const ModelOf none{shardkit::detail::List<Member>{}};
        return shardkit::Model<AllPrecisions>(*this, none);
    }
};

class GroupsOf final : public Groups {
  public:
    explicit GroupsOf(std::span<Group* const> groups) : Groups(groups), core(list(groups)) {}
    GroupsOf(const GroupsOf& other)
        : Groups(other.listed), core(other.core) {}  // NOLINT(bugprone-copy-constructor-init)

    Groups* copy() const override { return new GroupsOf(*this); }
    void require_live(SourceLocation where) const override {
        // Walking through them looks at each.
        for (const shardkit::detail::Group& group : shardkit::detail::Access::each(core, where)) {
            static_cast<void>(group);
        }
    }
    bool same(const Groups& other) const noexcept override {
        return core == static_cast<const GroupsOf&>(other).core;
    }
    SliceOrder slice_order(SourceLocation where) const override { return shardkit::slice_order(core, where); }
    std::size_t slice_of(std::ptrdiff_t microbatch, SourceLocation where) const override {
        return shardkit::slice_of(core, microbatch, where);
    }
    Object* summon(SourceLocation where) const override {
        struct OpenWindows final : Object {
            explicit OpenWindows(FullParams windows) : open(std::move(windows)) {}
            FullParams open;
        };
        return new OpenWindows(summon_full_params(core, where));
    }
    Accumulation* begin(std::size_t count, SourceLocation where) const override {
        return new AccumulationOf(count == 0 ? shardkit::Accumulation(core, until_reduced, where)
                                             : shardkit::Accumulation(core, count, where));
    }
    Reduced* assume_reduced(const Divisor& divisor, LossScale* scale, SourceLocation where) const override {
        auto* const scaled = core_of(scale);
        return new ReducedOf(scaled == nullptr ? shardkit::assume_reduced(core, divisor, where)
                                               : shardkit::assume_reduced(core, divisor, *scaled, where));
    }

    shardkit::Model<AllPrecisions> model() const { return ModelOf(core).model(); }

    shardkit::Groups core;

  private:
    static ModelOf list(std::span<Group* const> groups) {
        shardkit::detail::List<ModelOf::Member> members;
        for (Group* const group : groups) {
            if (group == nullptr) {
                members.push_back({nullptr, 0, {}, {}});
            } else {
                members.push_back(ModelOf::member_of(static_cast<AnyGroup&>(*group).core));
            }
        }
        return ModelOf(std::move(members));
    }
};
inline const GroupsOf& core_of(const Groups& groups) noexcept { return static_cast<const GroupsOf&>(groups); }

}  // namespace SHARDKIT_CHECKED_BUILD

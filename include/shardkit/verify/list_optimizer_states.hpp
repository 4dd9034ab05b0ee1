// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/core/block8.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/optim/kept_values.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/sharded/buffer_digests.hpp>
#include <shardkit/sharded/group.hpp>

namespace shardkit::detail SHARDKIT_BUILD {

/// Lists what an optimizer keeps between steps: its states as held values, and hashes of its numbers.
template <class Engine>
class ListStates final : public StateVisitor<Engine> {
  public:
    struct State {
        Group<Engine>* group;
        HeldBuffer values;
    };
    struct Number {
        std::string name;
        std::uint64_t hash;
    };
    std::vector<State> states;
    std::vector<Number> numbers;  ///< the same on every rank

    void group(Group<Engine>& group, MemoryReader*& /*reader*/, std::string_view /*rule*/) override {
        group_ = &group;
    }
    void progress(GroupProgress& progress) override {
        StatementHash hash = statement_hash(0, progress.own.size());
        const auto add = [&](const std::vector<std::uint64_t>& list) {
            for (const std::uint64_t number : list) { hash = statement_hash(hash, number); }
        };
        add(progress.own);
        add(progress.parameters);
        for (const GroupProgress::Part& part : progress.parts) {
            hash = statement_hash(hash, part.parameter, part.begin);
            add(part.numbers);
        }
        numbers.push_back({concat("'", group_->path(), "' count of steps"), hash});
        updated_ = progress.updated;
    }
    void state(std::string_view name, std::span<float> values, bool /*square*/) override { add(name, values, 1); }
    void state(std::string_view name, std::span<double> values, bool /*square*/) override { add(name, values, 1); }
    void state(std::string_view name, std::span<bf16> values, bool /*square*/) override { add(name, values, 1); }
    void state(std::string_view name, rules::Block8Span values, bool /*square*/) override {
        add(name, values.codes, 1);
        add(name, values.scales, Block8::block);
    }
    void kept(const KeptValues<float>& kept) override { add_kept(kept); }
    void kept(const KeptValues<double>& kept) override { add_kept(kept); }
    void hyper_parameters(StatementHash hash) override {
        numbers.push_back({"the optimizer's set of hyper-parameters", hash});
    }
    typename StateVisitor<Engine>::Purpose purpose() const noexcept override {
        return StateVisitor<Engine>::Purpose::compare;
    }

  private:
    /// Of what every rank has a hash. Waits for the compute stream.
    template <class A>
    void add_kept(const KeptValues<A>& kept) {
        if (!kept.everywhere) { return; }
        std::vector<A> values(kept.values.size());
        Engine::Kernels::copy_out(group_->context().compute_stream(), std::span<const A>(kept.values),
                                  std::span<A>(values));
        Fnv fnv;
        for (const A value : values) { fnv.add(std::bit_cast<std::uint64_t>(static_cast<double>(value))); }
        numbers.push_back({concat("'", group_->path(), "' ", kept.name, " of '",
                                  group_->geometry().parameters[kept.parameter].name, "'"),
                           fnv.hash});
    }
    template <class T>
    void add(std::string_view name, std::span<T> values, std::size_t unit) {
        const GroupGeometry& geometry = group_->geometry();
        states.push_back({group_,
                          {Role::states, name, values.data(), sizeof(T), geometry.updated, geometry.table.updated,
                           unit, updated_}});
    }

    Group<Engine>* group_ = nullptr;
    List<char> updated_;
};

}  // namespace shardkit::detail SHARDKIT_BUILD

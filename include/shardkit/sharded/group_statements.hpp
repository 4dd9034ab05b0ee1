// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/policy/placement_table.hpp>
#include <shardkit/policy/policy_values.hpp>
#include <shardkit/sharded/group_geometry.hpp>

namespace shardkit::detail {

/// A digest of at most `sampled` evenly spaced elements of a parameter. Replicas compare it, as they must hold equal
/// values.
class ValuesDigest {
  public:
    static constexpr std::size_t sampled = 1024;

    ValuesDigest() = default;
    /// Begins a digest of `size` values.
    explicit ValuesDigest(std::size_t size) noexcept : step_(size / sampled + 1), hash_(5) {}

    /// Adds the values from index `first` on. Calls must come in ascending order.
    template <FloatingElement T>
    void add(std::size_t first, std::span<const T> values) noexcept {
        for (std::size_t i = (step_ - first % step_) % step_; i < values.size(); i += step_) { add_one(values[i]); }
    }

    /// Adds value(i) of so many elements from number `first` on, of which only those that are sampled are asked for.
    template <FloatingElement T, class F>
    void add_each(std::size_t first, std::size_t count, const F& value) {
        for (std::size_t i = (step_ - first % step_) % step_; i < count; i += step_) { add_one(T{value(i)}); }
    }

    /// Returns 0 when no values were added.
    StatementHash hash() const noexcept { return hash_; }
    double sum() const noexcept { return sum_; }
    std::string text() const {
        return hash_ == 0 ? "not given" : concat("of sum ", number_text(sum_), " (hash ", hash_, ")");
    }

  private:
    template <FloatingElement T>
    void add_one(const T& value) noexcept {
        std::uint64_t bits = 0;
        std::memcpy(&bits, &value, sizeof(T));
        hash_ = statement_hash(hash_, bits);
        sum_ += static_cast<double>(static_cast<Arithmetic<T>>(value));
    }

    std::size_t step_ = 1;
    StatementHash hash_ = 0;
    double sum_ = 0;
};

/// The facts about a group that its ranks compare: the divisor of its gradients, its updates, the values of replicas.
/// Each call that moves the group's values carries a hash of them, so that ranks find a difference in the next call
/// that they make anyway. A group on a single rank compares nothing.
class GroupStatements : NotCopied {
  public:
    /// `book` is null for an engine that keeps no journal; `subject` is the group's path in quotes. `replicas` says
    /// over which ranks the values are replicated.
    GroupStatements(bool compared, StatementBook* book, const engine::CallSubject* subject,
                    const GroupGeometry& group, std::array<bool, 4> replicas)
        : book_(compared && subject != nullptr ? book : nullptr),
          group_(group),
          compared_(compared),
          replicas_(replicas) {
        if (book_ == nullptr) { return; }
        stated_.path = &subject->text;
        stated_.before = subject->hash;
        recent_ = book_->add_group();
    }

    /// Sets the hash of the divisor of the step's gradients.
    void set_gradients(StatementHash gradients) noexcept {
        dirty_ = dirty_ || gradients != stated_.gradients;
        stated_.gradients = gradients;
    }
    /// Adds one update.
    void add_update(StatementHash step, StatementHash choices) noexcept {
        if (!compared_) { return; }
        stated_.add_update(step, choices);
        dirty_ = true;
    }

    /// Returns whether the values of replicas are compared.
    bool compares_values() const noexcept { return compared_ && (replicas_[0] || replicas_[1] || replicas_[2]); }
    /// Sets the digest of the values that a parameter was given.
    void set_values(std::size_t parameter, const ValuesDigest& digest) {
        values_.resize(group_.parameters.size());
        values_[parameter] = digest;
        dirty_ = new_values_ = true;
    }
    /// Forgets the digests: the values have changed to ones that need no comparison.
    void forget_values() noexcept {
        values_.clear();
        before_next_ = nullptr;
        dirty_ = new_values_ = true;
    }
    /// Calls `digest` once before the next collective, to digest the values that are then in memory.
    void before_next(std::function<void()> digest) {
        before_next_ = std::move(digest);
        dirty_ = true;
    }

    /// Returns the hash that a call over these ranks carries.
    StatementHash in_call(Over over) {
        if (dirty_) [[unlikely]] { refresh(); }
        return replicas_[static_cast<std::size_t>(over)] ? replica_hash_ : plain_hash_;
    }
    /// Returns the hash of the updates alone.
    StatementHash updates() {
        if (dirty_) [[unlikely]] { refresh(); }
        return updates_hash_;
    }
    /// Lists the facts behind the hash of `updates`.
    Statements list_updates() { return book_ == nullptr ? Statements{} : book_->list(updates()); }

  private:
    void refresh() {
        dirty_ = false;
        if (!compared_) { return; }
        if (before_next_) { std::exchange(before_next_, nullptr)(); }
        dirty_ = false;
        if (std::exchange(new_values_, false)) { refresh_values(); }
        updates_hash_ = stated_.updates_hash();
        plain_hash_ = stated_.plain_hash();
        replica_hash_ = stated_.replica_hash();
        if (book_ != nullptr) { book_->note(*recent_, stated_); }
    }
    void refresh_values() {
        stated_.values = 0;
        Statements said;
        for (std::size_t p = 0; p < values_.size(); ++p) {
            stated_.values = statement_hash(stated_.values, values_[p].hash());
            said.push_back({concat("values of '", group_.path, "' parameter '", group_.parameters[p].name, "'"),
                            values_[p].text(),
                            {}});
        }
        if (book_ != nullptr) { kept_values_ = book_->keep(stated_.values, std::move(said)); }
    }

    StatementBook* book_;
    std::shared_ptr<RecentlyStated> recent_;
    const GroupGeometry& group_;
    bool compared_;
    bool dirty_ = false;
    bool new_values_ = false;
    std::array<bool, 4> replicas_;  // indexed by Over
    StatedGroup stated_;
    StatementHash updates_hash_ = 0;
    StatementHash plain_hash_ = 0;
    StatementHash replica_hash_ = 0;
    List<ValuesDigest> values_;  // one for each parameter
    StatementsHandle kept_values_;
    std::function<void()> before_next_;
};

}  // namespace shardkit::detail

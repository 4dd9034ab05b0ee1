// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/statement_book.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/number_text.hpp>
#include <shardkit/policy/placement.hpp>
#include <shardkit/policy/placement_table.hpp>

namespace shardkit::detail {

/// Of values that every replica of a parameter must be given alike: of at most `sampled` of them, evenly spread.
class ValuesDigest {
  public:
    static constexpr std::size_t sampled = 1024;

    ValuesDigest() = default;
    /// Of so many values.
    explicit ValuesDigest(std::size_t size) noexcept : step_(size / sampled + 1), hash_(5) {}

    /// The values from number `first` on. In ascending order.
    template <FloatingElement T>
    void add(std::size_t first, std::span<const T> values) noexcept {
        for (std::size_t i = (step_ - first % step_) % step_; i < values.size(); i += step_) {
            std::uint64_t bits = 0;
            std::memcpy(&bits, &values[i], sizeof(T));
            hash_ = statement_hash(hash_, bits);
            sum_ += static_cast<double>(static_cast<Arithmetic<T>>(values[i]));
        }
    }

    /// 0: nothing was given.
    StatementHash hash() const noexcept { return hash_; }
    double sum() const noexcept { return sum_; }
    std::string text() const {
        return hash_ == 0 ? "not given" : concat("of sum ", number_text(sum_), " (hash ", hash_, ")");
    }

  private:
    std::size_t step_ = 1;
    StatementHash hash_ = 0;
    double sum_ = 0;
};

/// What a rank states of a group beside each call that moves its values: what its gradients are divided by, its
/// updates, the values of replicas. Ranks compare a hash of it within the call and so find out in the next one that
/// they make anyway. A group that is on one rank states nothing.
/// A template, so that a file compiles of it what it uses.
template <class>
class BasicGroupStatements {
  public:
    /// `book`: null for an engine that keeps no journal; `subject`: "'blocks.0'". `replicas`: over which ranks the
    /// same values rest.
    BasicGroupStatements(bool compared, StatementBook* book, const CallSubject* subject, std::array<bool, 4> replicas)
        : book_(compared && subject != nullptr ? book : nullptr), compared_(compared), replicas_(replicas) {
        if (book_ == nullptr) { return; }
        stated_.path = &subject->text;
        stated_.before = subject->hash;
        recent_ = book_->add_group();
    }
    BasicGroupStatements(const BasicGroupStatements&) = delete;
    BasicGroupStatements& operator=(const BasicGroupStatements&) = delete;

    /// What the step's gradients are divided by.
    void set_gradients(StatementHash gradients) noexcept {
        dirty_ = dirty_ || gradients != stated_.gradients;
        stated_.gradients = gradients;
    }
    /// One more update.
    void add_update(StatementHash step, StatementHash choices) noexcept {
        if (!compared_) { return; }
        stated_.add_update(step, choices);
        dirty_ = true;
    }

    /// Whether replicas' values are compared.
    bool compares_values() const noexcept { return compared_ && (replicas_[0] || replicas_[1] || replicas_[2]); }
    /// One parameter of `count`, of the name that this group gives it, was given values.
    void set_values(std::size_t parameter, std::size_t count, const ValuesDigest& digest) {
        values_.resize(count);
        values_[parameter] = digest;
        dirty_ = new_values_ = true;
    }
    /// Values came that need no comparison.
    void forget_values() noexcept {
        values_.clear();
        before_next_ = nullptr;
        dirty_ = new_values_ = true;
    }
    /// What names parameter number i, for an error's text.
    void name_values(std::function<std::string(std::size_t)> name) { name_ = std::move(name); }
    /// `digest` is called before the next call, to set the values that lie in memory then.
    void before_next(std::function<void()> digest) {
        before_next_ = std::move(digest);
        dirty_ = true;
    }

    /// What a call over these ranks states.
    StatementHash in_call(Over over) {
        if (dirty_) [[unlikely]] { refresh(); }
        return hashes_[static_cast<std::size_t>(over)];
    }
    /// Of the updates alone.
    StatementHash updates() {
        if (dirty_) [[unlikely]] { refresh(); }
        return updates_hash_;
    }
    StatementHash gradients() const noexcept { return stated_.gradients; }
    /// What `updates` is of.
    Statements list_updates() { return book_ == nullptr ? Statements{} : book_->list(updates()); }

  private:
    void refresh();
    void refresh_values();

    StatementBook* book_;
    std::shared_ptr<RecentlyStated> recent_;
    bool compared_;
    bool dirty_ = false;
    bool new_values_ = false;
    std::array<bool, 4> replicas_;  // by Over
    StatedGroup stated_;
    StatementHash updates_hash_ = 0;
    std::array<StatementHash, 4> hashes_{};  // by Over
    std::vector<ValuesDigest> values_;       // of each parameter
    StatementsHandle kept_values_;
    std::function<std::string(std::size_t)> name_;
    std::function<void()> before_next_;
};
using GroupStatements = BasicGroupStatements<void>;

template <class T>
void BasicGroupStatements<T>::refresh() {
    if (!compared_) {
        dirty_ = false;
        return;
    }
    if (before_next_) { std::exchange(before_next_, nullptr)(); }
    dirty_ = false;
    if (std::exchange(new_values_, false)) { refresh_values(); }
    updates_hash_ = stated_.updates_hash();
    if (book_ != nullptr) { book_->note(*recent_, stated_); }
    const StatementHash plain = stated_.plain_hash();
    const StatementHash replica = stated_.replica_hash();
    for (std::size_t over = 0; over < hashes_.size(); ++over) { hashes_[over] = replicas_[over] ? replica : plain; }
}

template <class T>
void BasicGroupStatements<T>::refresh_values() {
    stated_.values = 0;
    for (const ValuesDigest& digest : values_) { stated_.values = statement_hash(stated_.values, digest.hash()); }
    if (book_ == nullptr) { return; }
    Statements said;
    for (std::size_t p = 0; p < values_.size(); ++p) {
        said.push_back({concat("values of ", name_(p)), values_[p].text(), {}});
    }
    kept_values_ = book_->keep(stated_.values, std::move(said));
}

}  // namespace shardkit::detail

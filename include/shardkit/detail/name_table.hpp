// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include <shardkit/detail/list.hpp>

namespace shardkit::detail {

/// Numbers names in the order in which they are added. The library has this one std::map of names, since g++ without
/// optimization makes about a hundred functions of a std::map of one more type. Cost: logarithmic, in any order.
class NameIndex {
  public:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);
    struct Added {
        std::size_t number;
        bool is_new;
    };

    /// Returns the number of a name, which is size() as it was before where the name is new.
    Added add(std::string_view name) {
        const auto known = numbers_.lower_bound(name);
        if (known != numbers_.end() && known->first == name) { return {known->second, false}; }
        const std::size_t number = numbers_.size();
        numbers_.emplace_hint(known, name, number);
        return {number, true};
    }
    /// Returns the number of a name, or `none`.
    std::size_t find(std::string_view name) const {
        const auto known = numbers_.find(name);
        return known == numbers_.end() ? none : known->second;
    }
    std::size_t size() const noexcept { return numbers_.size(); }
    bool empty() const noexcept { return numbers_.empty(); }
    /// Returns the names with their numbers, sorted by name.
    const std::map<std::string, std::size_t, std::less<>>& sorted() const noexcept { return numbers_; }

  private:
    std::map<std::string, std::size_t, std::less<>> numbers_;
};

/// A value for each name. References are valid until a name is added.
template <class Value>
class NameTable {
  public:
    struct Added {
        Value& value;
        bool is_new;
    };

    /// Returns the value of a name, which is `made` where the name is new.
    [[gnu::always_inline]] Added add(std::string_view name, Value made) {
        const NameIndex::Added added = index_.add(name);
        if (added.is_new) { values_.push_back(static_cast<Value&&>(made)); }
        return {values_[added.number], added.is_new};
    }
    [[gnu::always_inline]] Value& operator[](std::string_view name) { return add(name, Value{}).value; }
    /// Returns the value of a name; null where there is none.
    [[gnu::always_inline]] Value* find(std::string_view name) {
        const std::size_t number = index_.find(name);
        return number == NameIndex::none ? nullptr : &values_[number];
    }
    [[gnu::always_inline]] const Value* find(std::string_view name) const {
        const std::size_t number = index_.find(name);
        return number == NameIndex::none ? nullptr : &values_[number];
    }
    std::size_t size() const noexcept { return index_.size(); }
    /// Calls f(name, value) in the order of the names.
    template <class F>
    void for_each(const F& f) const {
        for (const auto& [name, number] : index_.sorted()) { f(name, values_[number]); }
    }

  private:
    NameIndex index_;
    List<Value> values_;
};

}  // namespace shardkit::detail

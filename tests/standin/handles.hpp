// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <memory>
#include <unordered_map>
#include <utility>

namespace standin {

/// The objects of one kind that exist, in the order in which they were made. Ranks make thousands of events: none of
/// the functions but `remove_if` takes longer for that.
template <class T>
class Handles {
  public:
    const std::list<std::unique_ptr<T>>& all() const { return all_; }

    T* add(std::unique_ptr<T> made) {
        const auto at = all_.insert(all_.end(), std::move(made));
        places_.emplace(at->get(), at);
        return at->get();
    }

    /// Null when there is none, whatever `handle` points at.
    T* find(const T* handle) const {
        const auto at = places_.find(handle);
        return at == places_.end() ? nullptr : at->second->get();
    }

    /// Of one that exists.
    void remove(const T* handle) {
        const auto at = places_.find(handle);
        const auto place = at->second;
        places_.erase(at);
        all_.erase(place);
    }

    template <class Predicate>
    void remove_if(Predicate gone) {
        for (auto at = all_.begin(); at != all_.end();) {
            const T& each = **at;
            ++at;
            if (gone(each)) { remove(&each); }
        }
    }

  private:
    std::list<std::unique_ptr<T>> all_;
    std::unordered_map<const T*, typename std::list<std::unique_ptr<T>>::iterator> places_;
};

}  // namespace standin

// SPDX-License-Identifier: Apache-2.0
// detail::List, against std::vector: random acts on both, of an element that counts those that live.
#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/detail/list.hpp>
#include <shardkit/detail/owned.hpp>

namespace list_test {

namespace {

using shardkit::detail::List;
using shardkit::detail::Owned;

struct Counted {
    static inline int living = 0;
    std::string text;  // longer than what a std::string keeps in itself

    Counted() : Counted(-1) {}
    explicit Counted(int number) : text("a text of which no part lies in the string: " + std::to_string(number)) {
        ++living;
    }
    Counted(const Counted& other) : text(other.text) { ++living; }
    Counted(Counted&& other) noexcept : text(std::move(other.text)) { ++living; }
    Counted& operator=(const Counted&) = default;
    Counted& operator=(Counted&&) noexcept = default;
    ~Counted() { --living; }
    friend bool operator==(const Counted& a, const Counted& b) { return a.text == b.text; }
};

template <class T>
bool same(const List<T>& list, const std::vector<T>& expected) {
    if (list.size() != expected.size() || list.empty() != expected.empty()) { return false; }
    std::size_t i = 0;
    for (const T& each : list) {
        if (!(each == expected[i]) || !(list[i] == expected[i])) { return false; }
        ++i;
    }
    return i == expected.size() &&
           (list.empty() || (list.front() == expected.front() && list.back() == expected.back()));
}

}  // namespace

TEST_CASE("random acts on a List and on a std::vector leave the same elements, and none that live on") {
    std::mt19937 random(7);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same acts in every run
    {
        List<Counted> list;
        std::vector<Counted> expected;
        for (int act = 0; act < 3000; ++act) {
            const std::size_t count = random() % 7;
            switch (random() % 9) {
                case 0:
                case 1:
                case 2:
                    list.push_back(Counted(act));
                    expected.emplace_back(act);
                    break;
                case 3:
                    list.emplace_back(act);
                    expected.emplace_back(act);
                    break;
                case 4: {
                    const std::vector<Counted> more(count, Counted(act));
                    list.append(more.data(), more.data() + more.size());
                    expected.insert(expected.end(), more.begin(), more.end());
                    break;
                }
                case 5: {
                    const auto gone = [&](const Counted& each) {
                        return each.text.back() == static_cast<char>('0' + count);
                    };
                    list.erase_if(gone);
                    std::erase_if(expected, gone);
                    break;
                }
                case 6:
                    if (!list.empty()) {  // an element of its own, which growth moves
                        list.push_back(list.front());
                        expected.push_back(Counted(expected.front()));
                    }
                    break;
                case 7:
                    list.resize(count + expected.size() / 2);
                    expected.resize(count + expected.size() / 2);
                    break;
                default: {
                    List<Counted> copy(list);
                    CHECK(copy == list);
                    list = std::move(copy);
                    if (count == 0) {
                        list.clear();
                        expected.clear();
                    }
                }
            }
            REQUIRE(same(list, expected));
            REQUIRE(Counted::living == static_cast<int>(list.size() + expected.size()));
        }
    }
    CHECK(Counted::living == 0);
}

TEST_CASE("an Owned ends its object, or its array, once") {
    REQUIRE(Counted::living == 0);
    {
        Owned<Counted> none;
        Owned<Counted> one(new Counted(1));
        Owned<Counted[]> three(new Counted[3]());
        CHECK(Counted::living == 4);
        none = std::move(one);
        CHECK((none && !one));
        CHECK(Counted::living == 4);
        Owned<Counted> moved(std::move(none));
        CHECK(!none);
        moved = Owned<Counted>(new Counted(2));
        CHECK(Counted::living == 4);
        three = Owned<Counted[]>();
        CHECK(Counted::living == 1);
    }
    CHECK(Counted::living == 0);
}

TEST_CASE("Lists of equal elements are equal, and others are not") {
    CHECK(List<int>{1, 2} == List<int>{1, 2});
    CHECK_FALSE(List<int>{1, 2} == List<int>{1, 3});
    CHECK_FALSE(List<int>{1, 2} == List<int>{1, 2, 3});
    CHECK(List<int>(2) == List<int>{0, 0});
}

TEST_CASE("a List grows by factors, keeps its memory when it is cleared, and moves what cannot be copied") {
    List<std::unique_ptr<int>> list;
    int moved = 0;
    const std::unique_ptr<int>* at = nullptr;
    for (int i = 0; i < 1000; ++i) {
        list.push_back(std::make_unique<int>(i));
        moved += list.data() != at ? 1 : 0;
        at = list.data();
    }
    CHECK(moved <= 11);
    CHECK(*list.span()[999] == 999);
    List<std::unique_ptr<int>> other(std::move(list));
    CHECK(other.data() == at);
    other.clear();
    other.push_back(nullptr);
    CHECK(other.data() == at);
    CHECK_FALSE(other.full());
}

}  // namespace list_test

# Lines of bench.sh in, ratios out: of each round the candidate's figure over md's of the same round; median (least..most).
function sort_numbers(list, count,    i, j, value) {
    for (i = 2; i <= count; i++) {
        value = list[i]
        for (j = i - 1; j >= 1 && list[j] > value; j--) list[j + 1] = list[j]
        list[j + 1] = value
    }
}
function median(list, count) {
    sort_numbers(list, count)
    return count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2
}
$2 == "call" { cost[$1] = $6; next }
{
    key = $1 " " $2 " " $3
    if (!(key in seen)) { seen[key] = 1; keys[++key_count] = key }
    if ($5 > rounds[key]) rounds[key] = $5
    if ($6 ~ /^[0-9.]+$/ && $6 > 0) value[key, $4, $5] = $6
}
END {
    if ("guest" in cost)
        printf "a system call that moves one byte: %d ns in the guest, %d ns on the host (%.0f times)\n", cost["guest"], cost["host"],
            cost["guest"] / cost["host"]
    print "md in MB/s (median); the others as ratios to md of the same round: median (least..most, rounds)"
    split("engine engine-sums nbd nbd-sums", names, " ")
    for (k = 1; k <= key_count; k++) {
        key = keys[k]
        count = 0
        for (round = 1; round <= rounds[key]; round++)
            if ((key, "md", round) in value) list[++count] = value[key, "md", round]
        if (!count) { print key ": md has no figure"; continue }
        printf "%-34s md %8.1f", key, median(list, count)
        for (n = 1; n <= 4; n++) {
            count = 0
            for (round = 1; round <= rounds[key]; round++)
                if (((key, names[n], round) in value) && ((key, "md", round) in value))
                    list[++count] = value[key, names[n], round] / value[key, "md", round]
            if (count) {
                middle = median(list, count)
                printf "  %s %.2f (%.2f..%.2f, %d)", names[n], middle, list[1], list[count], count
            } else printf "  %s none", names[n]
        }
        print ""
    }
}

# SPDX-License-Identifier: MIT
"""Words of the stories. The entries of a row belong together, such as a place and where things hide
in it, or a dish, what is missing for it and who has that, so that the text is coherent."""

GIRLS = ["Anna", "Lily", "Mia", "Rosa", "Clara", "Nora", "Ruby", "Hazel", "Maya", "Lucy"]
BOYS = ["Tom", "Ben", "Sam", "Max", "Leo", "Jack", "Finn", "Oscar", "Peter", "Noah"]
BEASTS = [
    "fox",
    "rabbit",
    "bear",
    "mouse",
    "squirrel",
    "hedgehog",
    "owl",
    "frog",
    "duck",
    "goat",
    "cat",
    "dog",
    "badger",
    "otter",
    "turtle",
    "deer",
]
BEAST_NAMES = ["Pip", "Bramble", "Dot", "Mossy", "Rusty", "Clover", "Nutmeg", "Pepper"]

TRAITS = [  # adjective, how it shows
    (
        "kind",
        "{he} always [shared {his} food|had a good word for everyone|helped those who were smaller]",
    ),
    ("brave", "{he} was not afraid of [the dark|thunder|tall trees|deep water]"),
    ("shy", "{he} [spoke only in a soft voice|liked to hide behind the door when guests came]"),
    ("clever", "{he} could [count to a thousand|solve any riddle|find a way out of any trouble]"),
    ("curious", "{he} asked [a hundred questions every day|why about everything]"),
    ("cheerful", "{he} sang [from morning to night|while {he} worked|even when it rained]"),
    ("stubborn", "{he} never gave up [once {he} had begun|before the work was done]"),
    ("careful", "{he} looked twice before {he} [jumped|crossed the road|touched anything]"),
    ("lazy", "{he} liked to [sleep until noon|lie in the grass and watch the clouds]"),
    ("quiet", "{he} would rather listen than talk"),
    ("proud", "{he} [liked to be first in everything|did not like to ask for help]"),
    ("patient", "{he} could wait [for hours|all day] without a word"),
]

HOMES = [
    "in a small village by the sea",
    "in a little house at the edge of the forest",
    "on a farm between two hills",
    "in a tall house in the middle of the town",
    "in a wooden hut near the river",
    "in a valley full of flowers",
    "on a green island",
    "in a stone house under the mountain",
    "near an old mill",
    "beside a quiet lake",
]
BURROWS = [
    "in a hollow tree",
    "in a warm burrow under the hill",
    "in a nest of leaves by the river",
    "under the roots of an old oak",
    "behind the barn of a farmer",
    "at the edge of a pond",
    "in a cave in the forest",
    "in a garden behind a red wall",
]

PLACES = [  # place, in/at, where things hide, something seen there
    (
        "forest",
        "in the forest",
        "under a pile of dry leaves|behind a fallen tree|between the roots of an oak",
        "tall trees",
    ),
    (
        "garden",
        "in the garden",
        "under the rose bush|behind the water barrel|between the cabbages",
        "yellow flowers",
    ),
    (
        "beach",
        "on the beach",
        "under a flat stone|behind the old boat|half buried in the sand",
        "white shells",
    ),
    (
        "meadow",
        "in the meadow",
        "in the high grass|behind the gate|under a thorn bush",
        "blue butterflies",
    ),
    (
        "market",
        "at the market",
        "under the table of the fish seller|behind a basket of apples|beside the well",
        "bright tents",
    ),
    (
        "park",
        "in the park",
        "under the long bench|behind the fountain|next to the swing",
        "children with kites",
    ),
    ("barn", "in the barn", "in the hay|behind a sack of corn|under the old cart", "sleepy cows"),
    (
        "river",
        "by the river",
        "between two wet stones|under the little bridge|among the reeds",
        "silver fish",
    ),
    (
        "hill",
        "on the hill",
        "behind a large rock|under a small pine tree|in the heather",
        "grey sheep",
    ),
    (
        "lake",
        "at the lake",
        "under the wooden pier|among the water lilies|in an empty boat",
        "a family of swans",
    ),
    (
        "school yard",
        "in the school yard",
        "behind the shed|under the stairs|beside the old wall",
        "a tall chestnut tree",
    ),
    (
        "mill",
        "at the old mill",
        "behind the big wheel|under a sack of flour|on the window sill",
        "white doves",
    ),
]

TOYS = [
    "ball",
    "kite",
    "wooden horse",
    "doll",
    "drum",
    "toy boat",
    "whistle",
    "spinning top",
    "little cart",
    "puppet",
    "teddy bear",
    "paper crown",
]
KEEPSAKES = [
    "key",
    "ring",
    "scarf",
    "hat",
    "button",
    "silver coin",
    "mitten",
    "book",
    "bell",
    "necklace",
    "basket",
    "lantern",
    "pocket knife",
    "map",
    "feather",
]
COLOURS = ["red", "blue", "green", "yellow", "white", "purple", "orange", "golden", "brown"]
SIZES = ["small", "tiny", "big", "little", "shiny", "soft", "old", "new", "beautiful", "round"]

WEATHER = [  # sky, what came of it
    ("the sun was shining", "the air was warm"),
    ("the sky was grey", "it looked like rain"),
    ("a cold wind was blowing", "the leaves were flying about"),
    ("it had rained all night", "the paths were full of puddles"),
    ("there was snow on the roofs", "the ground was hard"),
    ("a thick fog lay over the fields", "nobody could see far"),
    ("it was very hot", "everyone rested in the shade"),
    ("the first flowers were out", "the birds were singing"),
]
TIMES = [
    "One morning",
    "One day",
    "One afternoon",
    "Early one morning",
    "On a Sunday",
    "One evening",
    "One summer day",
    "One autumn morning",
    "One spring day",
    "One fine day",
]

ELDERS = [  # who, pronouns of whom
    ("grandmother", "she"),
    ("grandfather", "he"),
    ("mother", "she"),
    ("father", "he"),
    ("aunt", "she"),
    ("uncle", "he"),
]
TRADES = [
    ("baker", "he", "bread"),
    ("old farmer", "he", "potatoes"),
    ("teacher", "she", "lessons"),
    ("fisherman", "he", "nets"),
    ("miller", "he", "flour"),
    ("shepherd", "she", "sheep"),
    ("gardener", "she", "roses"),
    ("blacksmith", "he", "iron"),
    ("weaver", "she", "wool"),
    ("carpenter", "he", "wood"),
]

DISHES = [  # dish, what is missing, who has it, what it was for, smell
    ("apple cake", "sugar", "the neighbour", "a birthday", "sweet"),
    ("vegetable soup", "carrots", "the gardener", "a cold evening", "good"),
    ("pancakes", "eggs", "the farmer", "breakfast", "warm"),
    ("bread", "flour", "the miller", "the whole family", "fresh"),
    ("honey cookies", "honey", "the old beekeeper", "the winter feast", "rich"),
    ("berry pie", "butter", "the milkmaid", "the summer feast", "wonderful"),
    ("fish stew", "onions", "the woman next door", "the guests", "strong"),
    ("nut bread", "nuts", "the squirrels", "a picnic", "lovely"),
]
YOUNG = [  # young one, its mother, its home, its sound
    ("kitten", "cat", "the warm kitchen", "meowed"),
    ("puppy", "dog", "the yard", "whined"),
    ("lamb", "sheep", "the green hill", "bleated"),
    ("duckling", "duck", "the pond", "peeped"),
    ("foal", "mare", "the stable", "neighed softly"),
    ("chick", "hen", "the hen house", "chirped"),
    ("fawn", "deer", "the deep forest", "cried softly"),
    ("calf", "cow", "the barn", "mooed"),
    ("owlet", "owl", "the hollow oak", "hooted"),
    ("gosling", "goose", "the lake", "honked"),
]
BROKEN = [  # thing, broken part, what mends it, how it was mended, use
    (
        "cart",
        "wheel",
        "a strong piece of wood",
        "nailed the wheel together",
        "carry the apples home",
    ),
    ("chair", "leg", "glue and string", "tied the leg tight", "sit by the fire"),
    ("boat", "bottom", "tar and a board", "closed the hole", "row across the lake"),
    ("fence", "gate", "two long nails", "hung the gate again", "keep the goats in"),
    ("clock", "spring", "a bent wire", "put in a new spring", "know the time"),
    ("roof", "edge", "straw and clay", "covered the gap", "stay dry"),
    ("kite", "tail", "paper and ribbon", "made a new tail", "fly it in the wind"),
    ("well", "rope", "a new rope", "knotted the rope twice", "draw fresh water"),
    ("lamp", "glass", "a clean jar", "set the jar over the flame", "read at night"),
]
SKILLS = [  # to do, doing, where, how it failed, advice
    (
        "swim",
        "swimming",
        "at the lake",
        "sank like a stone",
        "breathe slowly and kick with both legs",
    ),
    ("whistle", "whistling", "on the hill", "only blew air", "make the lips round and blow gently"),
    ("skate", "skating", "on the frozen pond", "fell on the ice", "bend the knees and look ahead"),
    ("climb", "climbing", "at the old wall", "slid down again", "keep three points on the wall"),
    (
        "ride a bicycle",
        "riding",
        "in the yard",
        "rolled into the hedge",
        "look far ahead and not at the wheel",
    ),
    (
        "play the flute",
        "playing",
        "by the window",
        "made only a squeak",
        "cover every hole and blow softly",
    ),
    ("dance", "dancing", "in the barn", "stumbled over every step", "listen to the drum first"),
    (
        "read",
        "reading",
        "under the lamp",
        "mixed up the letters",
        "say each sound and then join them",
    ),
    ("fish", "fishing", "by the river", "caught only weeds", "sit still and watch the float"),
    (
        "juggle",
        "juggling",
        "in the kitchen",
        "dropped every apple",
        "throw one apple and wait for the top",
    ),
]
SEEDS = [  # seed of, plant, what threatened it, what saved it, what it bore
    ("sunflower", "snails", "a ring of sand", "a flower as big as a plate"),
    ("pumpkin", "the frost", "a blanket of straw", "a huge orange pumpkin"),
    ("bean", "the strong wind", "a long stick", "a basket full of beans"),
    ("apple", "hungry goats", "a little fence", "the sweetest apples of the village"),
    ("tomato", "the hot sun", "water every evening", "a bowl of red tomatoes"),
    ("strawberry", "the birds", "an old net", "a dish of sweet strawberries"),
    ("carrot", "the rabbits", "a row of stones", "the longest carrots of all"),
]
NOISES = [  # noise, what it was, what it wanted
    ("a scratching", "a small mouse", "looking for crumbs"),
    ("a knocking", "a branch", "moving in the wind"),
    ("a soft cry", "a lost kitten", "looking for its mother"),
    ("a deep hum", "a fat beetle", "caught in the curtain"),
    ("a dripping", "the rain", "coming through the roof"),
    ("a rustling", "a hedgehog", "hunting for worms"),
    ("a tapping", "a young bird", "asking to come in"),
    ("a long sigh", "the wind", "passing through the chimney"),
]
GIFTS = [  # made from, gift, what it does
    ("an old blanket", "a warm coat", "kept the cold away"),
    ("a piece of wood", "a small bird", "looked almost alive"),
    ("wool", "a long scarf", "was soft and warm"),
    ("paper", "a picture of the house", "made everyone smile"),
    ("shells", "a necklace", "shone in the light"),
    ("clay", "a round cup", "held the tea well"),
    ("wild flowers", "a bright crown", "smelled of summer"),
    ("reeds", "a little basket", "was just big enough for eggs"),
]
FEELINGS = ["happy", "glad", "proud", "thankful", "cheerful", "content"]
SAD = ["sad", "worried", "unhappy", "upset", "afraid", "disappointed"]
